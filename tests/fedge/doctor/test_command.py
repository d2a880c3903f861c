"""`fedge doctor` as its users see it, and federations whose shares are found out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedge.cli import main
from fedge.doctor.command import _print_findings, federation_table, resolved
from fedge.doctor.findings import BROKEN, WELL, Finding
from fedge.doctor.shares import Shares
from fedge.launch.projects.project import Project
from fedge.process.resources.machine import this_machine

ROOT = Path(__file__).parents[3]
AUTO = """
[tool.flwr.app]
[tool.fedge.federations]
default = "here"
[tool.fedge.federations.here]
options.num-supernodes = 9
options.backend.client-resources = "auto"
options.backend.init-args.log-to-driver = false
"""
QUICK = "num-server-rounds=1 report=false data.path='synthetic' train.model='linear' train.local-epochs=1"


@pytest.mark.slow
def test_the_table_and_the_federation(tmp_path, monkeypatch, capsys):
    """In a folder without a project; the federation that it prints is one that a project can have."""
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--json", "-c", "train.model='linear'", "-c", "data.path='synthetic'"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"cores", "memory", "Python", "Flower", "Ray", "seed", "a client"} <= {
        finding["name"] for finding in found["findings"]
    }
    assert found["client"]["clients"] == 9
    assert found["shares"]["at_a_time"] >= 1
    (tmp_path / "pyproject.toml").write_text(f"[tool.flwr.app]\n{found['federation']}\n")
    there = Project(tmp_path).federation("this-machine")
    assert there.num_supernodes == 9
    assert there.num_cpus == found["shares"]["num_cpus"]


@pytest.mark.slow
def test_a_run_that_cannot_work_is_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "-c", "data.path='nowhere.npz'"]) == 4
    printed = capsys.readouterr().out
    assert "✗ this run" in printed
    assert "data.path" in printed
    assert "1 error (" in printed


@pytest.mark.parametrize("federation", ["options.num-supernodes = 9", "address = '127.0.0.1:9093'"])
@pytest.mark.parametrize("setting", ["seed='abc'", "train.threads='two'", "runs-dir=3"])
def test_a_setting_of_another_type_is_an_error_and_no_traceback(
    tmp_path, capsys, monkeypatch, federation, setting
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.flwr.app]\n[tool.flwr.federations]\ndefault = 'here'\n"
        f"[tool.flwr.federations.here]\n{federation}\n"
    )
    assert main(["doctor", "-c", setting]) == 4
    printed = " ".join(capsys.readouterr().out.split())
    assert f"✗ this run {setting.partition('=')[0]} must be" in printed


def test_the_seed_of_a_project_that_sets_none_is_the_default(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEED", raising=False)
    (tmp_path / "pyproject.toml").write_text(
        "[tool.flwr.app]\n[tool.flwr.federations]\ndefault = 'far'\n"
        "[tool.flwr.federations.far]\naddress = '127.0.0.1:9093'\n"
    )
    assert main(["doctor", "--json"]) == 0
    found = {f["name"]: f["words"] for f in json.loads(capsys.readouterr().out)["findings"]}
    assert found["seed"].startswith("42, from config")


def test_long_names_leave_room_for_words(monkeypatch, capsys):
    """Of 60 columns and more; the folder of a project may be as long as a line."""
    monkeypatch.setenv("COLUMNS", "60")
    found = [Finding("clock", WELL, "right"), Finding("/home/" + "x" * 50, BROKEN, "not writable " * 8)]
    assert _print_findings(found, as_json=False) == 4
    clock, place, *words, _, _ = capsys.readouterr().out.splitlines()
    assert clock == f"  clock{' ' * 17}right"
    assert place == "✗ /home/" + "x" * 50
    assert " ".join(line.strip() for line in words) == ("not writable " * 8).strip()
    assert all(45 < len(line) <= 60 for line in words[:-1])


def test_shares_become_a_table():
    table = federation_table(Shares(7, 1.1428, 0.1428, 7, "GPU memory"), 30)
    assert "client-resources.num-gpus = 0.1428" in table
    assert "num-supernodes = 30" in table


@pytest.mark.slow
@pytest.mark.parametrize(
    ("usable", "of_ray", "told"),
    [
        (3.5, 3, 0),
        *(
            pytest.param(*case, marks=pytest.mark.extended)
            for case in ((0.5, 0, 1), (1.0, 8, 1), (8.0, 8, 0))
        ),
    ],
)
def test_the_table_gives_as_many_clients_at_a_time_as_are_said(
    tmp_path, monkeypatch, capsys, usable, of_ray, told
):
    """Ray counts half a CPU as none, and those that affinity withholds; then the table says how many."""
    monkeypatch.chdir(tmp_path)
    here = replace(this_machine(), usable_cores=usable, available_mib=64000.0)
    monkeypatch.setattr("fedge.doctor.command.this_machine", lambda: here)
    monkeypatch.setattr("fedge.doctor.command.cpus_of_ray", lambda: of_ray)
    assert main(["doctor", "--json", "-c", "train.model='linear' data.path='synthetic'"]) == 0
    found = json.loads(capsys.readouterr().out)
    (tmp_path / "pyproject.toml").write_text(f"[tool.flwr.app]\n{found['federation']}\n")
    there = Project(tmp_path).federation("this-machine")
    assert there.engine_cpus == told
    assert found["shares"]["at_a_time"] == int((there.engine_cpus or of_ray) / there.num_cpus)


@pytest.mark.slow
def test_auto_is_what_fits(tmp_path):
    (tmp_path / "pyproject.toml").write_text(AUTO)
    federation = Project(tmp_path).federation(None)
    assert federation.is_auto
    found, shares = resolved(federation, {"data.path": "synthetic", "train.model": "linear"})
    assert not found.is_auto
    assert found.num_cpus == shares.num_cpus
    assert found.engine_cpus >= 1
    assert found.init_args["log-to-driver"] is False


@pytest.mark.extended
@pytest.mark.slow
def test_a_run_takes_auto_and_flwr_run_refuses_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text(AUTO)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-c", QUICK]) == 0
    manifest = json.loads((tmp_path / "runs" / "latest" / "manifest.json").read_text())
    assert manifest["federation"]["workers"] >= 1
    capsys.readouterr()
    from fedge.launch.preflight import check_flwr_run

    (tmp_path / "pyproject.toml").write_text(AUTO.replace("fedge.federations", "flwr.federations"))
    with pytest.raises(SystemExit):
        check_flwr_run([str(tmp_path)])
    assert 'client-resources "auto" is for fedge run only' in capsys.readouterr().err
