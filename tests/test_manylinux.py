"""The wheel for all x86-64 Linuxes: its name, its bytes, and a run with it where no compiler is."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tools import manylinux

RUN = "num-server-rounds=1 report=false train.local-epochs=1 data.path=synthetic run-name=run"
_HERE = (platform.system(), platform.machine(), platform.libc_ver()[0])


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (("Linux", "x86_64", "glibc"), None),
        (("Linux", "aarch64", "glibc"), "this is Linux on aarch64"),
        (("Linux", "x86_64", ""), "this is Linux on x86_64"),
        (("Darwin", "arm64", ""), "this is Darwin on arm64"),
    ],
)
def test_where_it_can_be_built(here, why):
    said = manylinux.objection(*here)
    assert said is None if why is None else why in said


def test_elsewhere_that_is_said_and_nothing_is_built(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert manylinux.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("no wheel with the native step: ")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built here."""
    try:
        manylinux._install_tools()
    except subprocess.CalledProcessError:
        pytest.skip("auditwheel cannot be installed")
    return manylinux.build(tmp_path_factory.mktemp("dist"))


def installed(wheel, folder):
    """Program paths of a new environment with the wheel; what Fedge needs is that of this one."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    others = [path for path in sys.path if path.endswith("-packages")]
    (Path(paths["purelib"]) / "others.pth").write_text("\n".join(others) + "\n")
    pip = [f"{paths['scripts']}/python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--ignore-installed", str(wheel)], check=True)
    return Path(paths["scripts"])


@pytest.mark.extended
@pytest.mark.skipif(manylinux.objection(*_HERE) is not None, reason="it cannot be built here")
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_it_trains_natively_where_no_compiler_is_with_the_bytes_of_a_checkout(wheel, tmp_path):
    version = re.fullmatch(r"fedge-[\d.]+-py3-none-manylinux_2_(\d+)_x86_64\.whl", wheel.name)
    assert version is not None, wheel.name
    assert int(version[1]) <= 28, "PyTorch's own are for 2_28"
    (tmp_path / "again").mkdir()
    assert manylinux.build(tmp_path / "again").read_bytes() == wheel.read_bytes()
    libraries = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert libraries == ["fedge/native/_step.so"]
    programs = installed(wheel, tmp_path / "venv")
    models = {}
    for name, folder in (("wheel", programs), ("checkout", Path(sys.executable).parent)):
        place = tmp_path / name
        place.mkdir()
        variables = {**os.environ, "PATH": str(folder)}
        variables.pop("PYTHONPATH", None)
        words = [str(folder / "fedge"), "run", "-c", RUN]
        done = subprocess.run(
            words, cwd=place, env=variables, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        run = place / "runs" / "run"
        assert json.loads((run / "manifest.json").read_text())["kernel"]["name"].startswith("native ")
        models[name] = (run / "checkpoints" / "final.safetensors").read_bytes()
    assert models["wheel"] == models["checkout"]
