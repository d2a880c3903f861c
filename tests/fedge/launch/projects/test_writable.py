"""A project that Flower cannot write to is submitted as a copy; any other where it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from unprivileged import unprivileged

from fedge.launch.projects.writable import writable_project

ASKED = """
import sys
from pathlib import Path
from fedge.config.registers.option import ConfigError
from fedge.launch.projects.writable import writable_project
try:
    print(writable_project(Path(sys.argv[1]), Path(sys.argv[2])), end="")
except ConfigError as error:
    print(error, end="")
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "app"
    for name in ("pyproject.toml", ".gitignore", "app/model.py", "texts/read.md", "data/x.npz", ".git/a.py",
                 ".flwr/.credentials/there.json", ".flwr/config.toml", "app/__pycache__/b.py"):  # fmt: skip
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "place").mkdir()
    return folder


def asked(project):
    """The folder that a user without the rights of root gets, or the refusal."""
    words = unprivileged([sys.executable, "-c", ASKED, project, project.parent / "place"])
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("closed", [".", "pyproject.toml", ".flwr", ".flwr/.credentials"])
def test_a_copy_has_what_is_submitted_and_can_be_written_to(project, closed):
    os.chmod(project / "app" / "model.py", 0o444)
    os.chmod(project / closed, 0o444 if closed.endswith("toml") else 0o555)
    copy = project.parent / "place" / "app"
    assert asked(project) == str(copy)
    found = {str(path.relative_to(copy)): path for path in copy.rglob("*") if path.is_file()}
    assert set(found) == {"pyproject.toml", ".gitignore", "app/model.py", "texts/read.md"}
    assert all(path.read_text() == name for name, path in found.items())
    assert all(path.stat().st_mode & 0o200 for path in copy.rglob("*"))


def test_a_project_that_can_be_written_to_stays_where_it_is(project):
    assert asked(project) == str(project)
    assert writable_project(project, project.parent / "place") == project


def test_what_cannot_be_read_is_named(project):
    os.chmod(project / "app" / "model.py", 0)
    os.chmod(project, 0o555)
    said = asked(project)
    assert f"but {Path(project, 'app', 'model.py')}: Permission denied; change that" in said
