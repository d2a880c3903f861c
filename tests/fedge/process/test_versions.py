"""Versions of all that results depend on; every edit changes that of Fedge's code."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from shutil import copytree, ignore_patterns

import fedge
from fedge.process.versions import versions


def code_version(root: Path) -> str:
    code = "from fedge.process.versions import versions; print(versions()['fedge-code'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_versions_are_those_of_the_packages():
    found = versions()
    assert found["torch"] == version("torch")
    assert found["python"] == sys.version.split()[0]
    assert len(found["fedge-code"]) == 12


def test_every_edit_has_another_version(tmp_path):
    """Of a copy: the same as here; with one more comment, another; in another place, the same."""
    for place in ("one", "two"):
        source = Path(fedge.__file__).parent
        copytree(source, tmp_path / place / "fedge", ignore=ignore_patterns("__pycache__"))
    assert code_version(tmp_path / "one") == versions()["fedge-code"]
    with (tmp_path / "two" / "fedge" / "seeding.py").open("a") as file:
        file.write("# a comment\n")
    assert code_version(tmp_path / "two") != versions()["fedge-code"]
