"""Version of Flower that `make matrix` asks for, and its message where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedge.launch.projects.project import read_toml
from tools import matrix

PROJECT = read_toml(Path(__file__).parents[1] / "pyproject.toml", "pyproject.toml")["project"]


def test_the_newest_is_what_pyproject_takes():
    """Nothing that it refuses: a Flower that nobody has tried, a Ray that listens on all interfaces."""
    project = {
        "dependencies": ["numpy>=1", "flwr>=1.25,<1.43"],
        "optional-dependencies": {"ray": ["ray>=2.31,<2.54"]},
    }
    assert matrix.requirements(project) == ("flwr>=1.41,<1.43", "ray>=2.31,<2.54")
    assert matrix.requirements(project, "1.41.0") == ("flwr==1.41.0", "ray>=2.31,<2.54")
    flower, ray = matrix.requirements(PROJECT)
    assert flower.startswith("flwr>=1.41,<1.")
    assert ray.endswith("<2.54")


def test_what_it_tests_is_there():
    for test in (*matrix.TESTS, *matrix.DEPLOYED):
        assert (matrix.ROOT / test).exists()


def test_the_projects_commands_are_in_the_environment(tmp_path):
    """It lies in the environment below, whose commands start the Flower there."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    matrix.write_commands(tmp_path, {"where": "os:getcwd"})
    done = subprocess.run(
        tmp_path / "bin" / "where", cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == str(tmp_path)


@pytest.mark.extended
def test_without_an_index_it_says_why_and_is_no_failure(tmp_path, monkeypatch, capsys):
    """A real environment and a real pip that finds nothing."""
    monkeypatch.setattr(matrix, "PLACE", tmp_path / "env")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert matrix.main(["1.99.0"]) == 0
    assert "skipped, because flwr==1.99.0 ray>=2.31,<2.54 cannot be had here" in capsys.readouterr().out
    assert not (tmp_path / "env").exists()
    with pytest.raises(matrix.NotHere):
        matrix.make(tmp_path / "env", ["flwr==1.99.0"])
