"""Fedge as installed from its wheel, in folders that are no checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import user_methods
from user_tasks import FILES, FIRST_SCORES, OPTIONS

from fedge import load_run

ROOT = Path(__file__).parents[3]
SHORT = "num-server-rounds=1 report=false train.local-epochs=1"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The variables of a shell whose `fedge` and `flwr` are of an environment with the wheel."""
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
    """A function that carries out words in a folder that was empty, and gives what they printed."""

    def carry_out(*words, folder=tmp_path):
        program = shutil.which(words[0], path=installed["PATH"])
        ended = subprocess.run(
            [program, *words[1:]], cwd=folder, env=installed, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return carry_out


def manifest_of(folder):
    """The manifest of the newest run in a folder."""
    return json.loads((folder / "runs" / "latest" / "manifest.json").read_text())


def test_an_empty_folder_is_enough(shell, tmp_path):
    """A packaged configuration over the default, the list of them; the default alone runs below."""
    assert str(ROOT) not in shell("python", "-c", "import fedge, hhar; print(fedge.__file__, hhar.__file__)")
    assert len(shell("fedge", "configs").splitlines()) == len(list((ROOT / "configs").rglob("*.toml")))
    assert shell("fedge", "docs", "README") == (ROOT / "README.md").read_text(encoding="utf-8")
    out = shell("fedge", "run", "-c", "fedge:hierfl", "-c", SHORT + ' train.model="mlp-tiny"')
    assert "no pyproject.toml in this folder" in out
    assert "round 1/1" in out
    assert manifest_of(tmp_path)["status"] == "completed"
    assert manifest_of(tmp_path)["config"]["gate.enabled"] is False


@pytest.mark.extended
def test_a_new_project_works_at_once(shell, tmp_path):
    """Its tests, which carry out `fedge run`, and all that is asked before `flwr run . -c` starts Ray."""
    shell("fedge", "new", "my-study")
    study = tmp_path / "my-study"
    assert "2 passed" in shell("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=study)
    asked = [".", "-c", SHORT + """ train.model-args='{"width": 4}'"""]
    code = "import sys; from fedge.launch.preflight import check_flwr_run; check_flwr_run(sys.argv[1:])"
    shell("python", "-c", code, *asked, folder=study)


@pytest.mark.extended
def test_a_new_project_has_the_same_metrics_on_both_engines(shell, tmp_path):
    """`fedge run`, `flwr run .` with -c; tests/newcomer.sh does it with parts of its own."""
    shell("fedge", "new", "my-study")
    study, tables = tmp_path / "my-study", {}
    for words, engine in ((("fedge", "run"), "inprocess"), (("flwr", "run", "."), "flower")):
        shell(*words, "-c", SHORT + """ train.model-args='{"width": 4}'""", folder=study)
        manifest = manifest_of(study)
        assert (manifest["status"], manifest["engine"]) == ("completed", engine)
        assert manifest["config"]["train.model-args"] == '{"width": 4}'
        tables[words[0]] = load_run(study / "runs" / "latest").clients
    measured = [column for column in tables["fedge"].columns if "seconds" in column]
    assert tables["fedge"].drop(measured).equals(tables["flwr"].drop(measured))


@pytest.mark.extended
def test_what_goes_to_an_index_is_whole_and_installs(tmp_path):
    """sdist and wheel: valid for an index, of one version also where there is no git, installed by pip."""
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / "dist")]
    plain = {**os.environ, "FEDGE_WHEEL": "index"}  # as make dist: without the native step
    subprocess.run(build, cwd=ROOT, env=plain, check=True, capture_output=True)
    source, wheel = sorted((tmp_path / "dist").iterdir(), key=lambda file: file.suffix)
    version = wheel.name.split("-")[1]
    assert source.name == f"fedge-{version}.tar.gz"
    assert wheel.name == f"fedge-{version}-py3-none-any.whl"
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", source, wheel],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout.count("PASSED")) == (0, 2), checked.stdout
    for number, file in enumerate((source, wheel)):
        target = tmp_path / f"site-{number}"
        words = [
            "--quiet",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "--no-compile",
            "--target",
            str(target),
        ]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", *words, file], cwd=tmp_path, env=plain, check=True
        )
        assert (target / f"fedge-{version}.dist-info" / "licenses" / "LICENSE").is_file()
        assert (target / "fedge" / "packaged" / "configs" / "hierfl.toml").is_file()
        assert all((target / package / "py.typed").is_file() for package in ("fedge", "hhar"))
        pages = {page.stem for page in (target / "fedge" / "packaged" / "docs").glob("*.md")}
        assert pages == {"index", *(page.stem for page in (ROOT / "docs").glob("*.md"))}
        assert {path.name for path in (target / "bin").iterdir()} >= {"fedge", "hhar"}
    with tarfile.open(source) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert {"fedge", "hhar", "tests", "docs", "configs", "LICENSE", "README.md", "CHANGELOG.md"} <= tops
    assert not {".venv", "runs", "build", "dist"} & tops


@pytest.mark.soak
def test_a_newcomer_gets_along(tmp_path):
    """tests/newcomer.sh in the environment of the tests; `make newcomer` does it all, in a fresh one."""
    environment = {**os.environ, "ENVIRONMENT": str(Path(sys.executable).parents[1]), "FOLDER": str(tmp_path)}
    ended = subprocess.run(
        ["bash", str(ROOT / "tests" / "newcomer.sh")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "agree in every bit" in ended.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extended
@pytest.mark.parametrize("name", FILES)
def test_projects_of_other_tasks_have_the_same_bits_on_both_engines(name, shell, tmp_path):
    """Regression; next character by a GRU; a task, loss and scores of one's own: run, report, compare."""
    for file, text in FILES[name].items():
        (tmp_path / file).write_text(text)
    packaged = "import fedge, pathlib; print(pathlib.Path(fedge.__file__).parent / 'packaged' / 'examples')"
    shutil.copy(Path(shell("python", "-c", packaged).strip()) / "my_characters.py", tmp_path)
    said = [word for key, value in OPTIONS[name].items() for word in ("-c", f"{key}={json.dumps(value)}")]
    runs = {}
    for engine in ("inprocess", "flower"):
        shell("fedge", "run", "--engine", engine, *said, "-c", f'run-name="{engine}"')
        runs[engine] = load_run(tmp_path / "runs" / engine)
    here, there = runs.values()
    models = [run.folder / "checkpoints" / "final.safetensors" for run in (here, there)]
    assert models[0].read_bytes() == models[1].read_bytes()
    measured = [column for column in here.rounds.columns if "seconds" in column]
    assert here.rounds.drop(measured).equals(there.rounds.drop(measured))
    assert here.score.name == FIRST_SCORES[name]
    said = shell("fedge", "compare", "inprocess", "flower")
    assert f"mean test {here.score.label}" in said


@pytest.mark.extended
@pytest.mark.parametrize("name", user_methods.FILES)
def test_projects_with_a_method_have_the_same_bits_on_both_engines(name, shell, tmp_path):
    """Ditto and the soft family from their texts, and adapters: as what comes with Fedge, and on Ray."""
    for file, text in user_methods.FILES[name].items():
        (tmp_path / file).write_text(text)
        assert len(text.splitlines()) < user_methods.MOST_LINES[name]
    packaged = "import fedge, pathlib; print(pathlib.Path(fedge.__file__).parent / 'packaged' / 'examples')"
    shutil.copy(Path(shell("python", "-c", packaged).strip()) / "my_lora.py", tmp_path)
    own, fedges = user_methods.OWN[name], user_methods.FEDGES[name]
    runs = {}
    for run, options, engine in (
        ("own", own, "inprocess"), ("fedges", fedges, "inprocess"), ("ray", own, "flower"),
    ):  # fmt: skip
        said = [word for key, value in options.items() for word in ("-c", f"{key}={json.dumps(value)}")]
        shell("fedge", "run", "--engine", engine, *said, "-c", f'run-name="{run}"')
        runs[run] = load_run(tmp_path / "runs" / run)
        assert runs[run].status == "completed"
    finals = {run: (one.folder / "checkpoints" / "final.safetensors") for run, one in runs.items()}
    assert finals["own"].read_bytes() == finals["ray"].read_bytes()
    assert runs["own"].client_models.equals(runs["ray"].client_models)
    assert runs["own"].memberships.equals(runs["ray"].memberships)
    for mine, theirs in zip(runs["own"].models(), runs["fedges"].models(), strict=True):
        for entry, array in theirs.items():
            np.testing.assert_allclose(mine[entry], array, rtol=1e-4, atol=1e-6, err_msg=entry)
    if name == "ditto":
        assert runs["own"].client_models.equals(runs["fedges"].client_models)
    if name == "soft":
        shares = [run.memberships["membership"].to_numpy() for run in (runs["own"], runs["fedges"])]
        np.testing.assert_allclose(*shares, atol=1e-6)
        assert runs["own"].memberships["models"].max() > 1
    if name == "adapters":
        sent = [run.rounds["uplink_bytes"].to_list() for run in (runs["own"], runs["fedges"])]
        assert all(few < many / 2 for few, many in zip(*sent, strict=True))


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="there is no C++ compiler")
def test_the_wheel_has_the_native_step(shell, tmp_path):
    """Built from the wheel's own sources, and used."""
    config = SHORT + ' train.model="linear" train.kernel="native" data.path="synthetic"'
    shell("fedge", "run", "-c", config)
    assert manifest_of(tmp_path)["kernel"]["name"].startswith("native ")


def test_a_wheel_made_without_a_compiler_is_of_any_system(tmp_path):
    """It works on PyTorch, which the building says."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True, text=True, env={**os.environ, "CXX": "no-such-compiler"},
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    assert "without the native step: there is no C++ compiler no-such-compiler" in done.stdout + done.stderr
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
