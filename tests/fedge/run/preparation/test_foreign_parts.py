"""A run folder from elsewhere that names code, gone on with: refused before anything is imported."""

import json
import shutil
import sys

import pytest
from small_runs import small_config

from fedge.cli import main

PART = """
open({canary!r}, "w").close()
def together(evidence, config, before):
    return [0] * len(evidence.models)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a method of its own, and a run of it with one round left."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "foreign_method.py").write_text(PART.format(canary=str(tmp_path / "canary")))
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(folder)
    config = small_config(folder, cluster__method="foreign_method:together", runs_dir="runs", run_name="r")
    words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    assert main(["run", "-c", words]) == 0
    forget(tmp_path)
    yield folder
    sys.modules.pop("foreign_method", None)


def forget(tmp_path):
    sys.modules.pop("foreign_method", None)
    (tmp_path / "canary").unlink(missing_ok=True)


def go_on(*words):
    return main(["resume", "runs/r", "-c", "num-server-rounds=3", *words])


def test_one_s_own_run_goes_on(project, tmp_path):
    assert go_on() == 0
    assert (tmp_path / "canary").exists()


def test_a_run_of_others_needs_a_yes_which_is_remembered(project, tmp_path, capsys):
    shutil.rmtree(tmp_path / "config")  # this user has not carried it out
    assert go_on() == 4
    said = capsys.readouterr().err
    assert "cluster.method foreign_method:together is code of" in said
    assert "add --trust-code" in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "canary").exists()
    assert go_on("--trust-code") == 0
    forget(tmp_path)
    assert main(["resume", "runs/r", "-c", "num-server-rounds=4"]) == 0


def test_no_code_of_the_run_folder_is_taken(project, tmp_path, monkeypatch, capsys):
    """Not even where private.json says that it lay there, nor from within the folder."""
    shutil.rmtree(tmp_path / "config")
    run = project / "runs" / "r"
    (project / "foreign_method.py").rename(run / "foreign_method.py")
    private = json.loads((run / "private.json").read_text())
    private["code"] = [str(run)]
    (run / "private.json").write_text(json.dumps(private))
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    assert go_on("--trust-code") == 4
    assert "there is no module foreign_method" in capsys.readouterr().err
    monkeypatch.chdir(run)
    assert main(["resume", ".", "-c", "num-server-rounds=3", "--trust-code"]) == 4
    assert "lies in the folder that names it" in capsys.readouterr().err
    assert not (tmp_path / "canary").exists()
