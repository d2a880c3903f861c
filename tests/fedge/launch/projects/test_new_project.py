"""`fedge new`: what it writes, and what it refuses. That it runs is tested from the wheel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.launch.projects.new_project import new_project
from fedge.launch.projects.project import Project, read_toml

ROOT = Path(__file__).parents[4]


def test_a_project_has_every_option_and_federation_and_its_own_model(tmp_path):
    """Flower takes with -c only what stands in pyproject.toml."""
    files = new_project(tmp_path / "My-study.2")
    mine, fedges = Project(tmp_path / "My-study.2"), Project(ROOT)
    assert not mine.packaged
    assert mine.run_config([]) == {**fedges.run_config([]), "train.model": "my_study_2.model:Net"}
    assert mine.federation(None) == fedges.federation(None)
    assert mine.federation("local-simulation-30") == fedges.federation("local-simulation-30")
    project = read_toml(mine.path, "it")["project"]
    assert (project["name"], project["dependencies"]) == ("My-study.2", ["fedge[ray]"])
    assert {file.relative_to(tmp_path / "My-study.2").as_posix() for file in files} == {
        ".gitignore", "README.md", "pyproject.toml", "my_study_2/__init__.py", "my_study_2/data.py",
        "my_study_2/method.py", "my_study_2/model.py",
        "tests/test_my_study_2.py",
    }  # fmt: skip
    for file in files:
        if file.suffix == ".py":
            compile(file.read_text(), file, "exec")
        assert "{" not in file.read_text() or file.suffix in (".py", ".toml")


def test_with_a_method_its_clients_follow_it(tmp_path):
    files = new_project(tmp_path / "mine", method=True)
    assert tmp_path / "mine" / "mine" / "algorithm.py" in files
    config = Project(tmp_path / "mine").run_config([])
    assert config["train.algorithm"] == "mine.algorithm:Ditto"
    assert config["scaffold.enabled"] is False
    assert "| `mine/algorithm.py` |" in (tmp_path / "mine" / "README.md").read_text()


@pytest.mark.extended
@pytest.mark.whole_runs
def test_the_tests_of_a_project_with_a_method_pass(tmp_path):
    """They fail where the method has no personal models."""
    new_project(tmp_path / "mine", method=True)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "own"]
    done = subprocess.run(tests, cwd=tmp_path / "mine", capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    code = tmp_path / "mine" / "mine" / "algorithm.py"
    code.write_text(code.read_text().replace('{"personal": ', '{"other": '))
    done = subprocess.run(tests, cwd=tmp_path / "mine", capture_output=True, text=True, timeout=900)
    assert "1 failed" in done.stdout


def test_an_empty_folder_is_taken_and_the_next_step_said(tmp_path, monkeypatch, capsys):
    (tmp_path / "study").mkdir()
    monkeypatch.chdir(tmp_path / "study")
    assert main(["new", "."]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: cd . && fedge run -c num-server-rounds=5"
    assert Project(tmp_path / "study").folder == tmp_path / "study"


def test_what_is_there_is_never_written_over(tmp_path, capsys):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name in ("study", "file", "link"):
        assert main(["new", str(tmp_path / name)]) == 4
        error = capsys.readouterr().err
        assert error.startswith("fedge: the project's folder must be new or empty, but ")
        assert error.count("\n") == 1
    assert os.listdir(tmp_path / "study") == ["notes.txt"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["2nd", "my study", "my--study", "-x", "étude", 'a"b', "x\ny"])
def test_a_name_that_no_project_can_have(tmp_path, name):
    with pytest.raises(
        ConfigError, match="the project's name must be letters and digits, starting with a letter"
    ):
        new_project(tmp_path / name)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["class", "json", "numpy", "Fedge", "tests"])
def test_a_name_that_would_hide_a_module(tmp_path, name):
    with pytest.raises(
        ConfigError,
        match=rf"must not be a Python keyword or module.*but is '{name}'; e\.g\. fedge new {name}-study",
    ):
        new_project(tmp_path / name)
    assert not os.listdir(tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"the project's folder must be writable, but .*Not a directory"):
        new_project(tmp_path / "file" / "study")
