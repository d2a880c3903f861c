"""Fedge as installed from its wheel, in folders that are no checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT = "num-server-rounds=1 report=false train.local-epochs=1"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the variables of a shell whose `fedge` and `flwr` are of an environment with the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    paths = sysconfig.get_paths(vars={"base": str(folder / "venv"), "platbase": str(folder / "venv")})
    site, scripts = Path(paths["purelib"]), Path(paths["scripts"])
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    # what Fedge needs is there already; a path file of another folder is not followed, so the checkout is not
    others = [path for path in sys.path if path.endswith("-packages")]
    (site / "others.pth").write_text("\n".join(others) + "\n")
    (scripts / "fedge").write_text(
        f"#!{scripts / 'python'}\nimport sys\nfrom fedge.cli import main\nsys.exit(main())\n"
    )
    (scripts / "fedge").chmod(0o755)
    for name in ("flwr", "flower-simulation"):
        text = (Path(sys.executable).parent / name).read_text().split("\n", 1)[1]
        (scripts / name).write_text(f"#!{scripts / 'python'}\n{text}")
        (scripts / name).chmod(0o755)
    variables = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    variables.pop("PYTHONPATH", None)
    return variables


@pytest.fixture(name="shell")
def fixture_shell(installed, tmp_path):
    """Return a function that carries out words in a folder that was empty, and gives what they printed."""

    def carry_out(*words, folder=tmp_path):
        program = shutil.which(words[0], path=installed["PATH"])
        ended = subprocess.run(
            [program, *words[1:]], cwd=folder, env=installed, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return carry_out


def manifest_of(folder):
    """Return the manifest of the newest run in a folder."""
    return json.loads((folder / "runs" / "latest" / "manifest.json").read_text())


def test_an_empty_folder_is_enough(shell, tmp_path):
    """The default, a packaged configuration, the list of them."""
    assert str(ROOT) not in shell("python", "-c", "import fedge, hhar; print(fedge.__file__, hhar.__file__)")
    out = shell("fedge", "run", "-c", SHORT, "-c", 'train.model="mlp-tiny"')
    assert "round 1/1" in out
    assert manifest_of(tmp_path)["status"] == "completed"
    assert len(shell("fedge", "configs").splitlines()) == len(list((ROOT / "configs").rglob("*.toml")))
    shell("fedge", "run", "-c", "fedge:hierfl", "-c", SHORT + ' train.model="mlp-tiny"')
    assert manifest_of(tmp_path)["config"]["gate.enabled"] is False


def test_a_new_project_works_at_once(shell, tmp_path):
    """`fedge run`, `flwr run .` with -c, and pytest; the two engines give the same metrics."""
    shell("fedge", "new", "my-study")
    study, tables = tmp_path / "my-study", {}
    for words in (("fedge", "run"), ("flwr", "run", ".")):
        shell(*words, "-c", SHORT + " train.model-args.width=4", folder=study)
        assert manifest_of(study)["status"] == "completed"
        tables[words[0]] = (study / "runs" / "latest" / "metrics" / "clients.csv").read_text()
    assert tables["fedge"] == tables["flwr"]
    assert "1 passed" in shell("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=study)
