import errno
import io
import json
import sys

import pytest
from small_runs import small_config

from fedge.client_app import app
from fedge.config.registers.engines import IN_PROCESS
from fedge.engine.inprocess import InProcessGrid
from fedge.records import recorder
from fedge.records.manifest import read_manifest
from fedge.run.run import run


def carry_out(config):
    """Run a configuration on two threads; return outcome and what the terminal showed."""
    terminal = io.StringIO()
    with InProcessGrid(app, 9, config, 2) as grid:
        return run(
            grid, config, IN_PROCESS.name, {"num-supernodes": 9}, lambda _: terminal
        ), terminal.getvalue()


def test_a_run_prepares_itself_where_nobody_has(tmp_path):
    outcome, shown = carry_out(small_config(tmp_path))
    assert (outcome.status, outcome.exit_code) == ("completed", 0)
    assert "9 clients under 3 leaves (3,3,3), model linear, seed 3" in shown
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    assert manifest["status"] == "completed"
    assert not (outcome.folder / "data").exists()


def test_what_cannot_be_is_one_line_and_no_folder(tmp_path, capsys):
    config = small_config(tmp_path)
    outcome, shown = carry_out({**config, "train.lt": 1.0})
    assert (outcome.folder, outcome.exit_code, shown) == (None, 4, "")
    assert capsys.readouterr().err.startswith("fedge: train.lt is not a configuration key")
    assert not (tmp_path / "runs").exists()


def test_data_that_do_not_fit_fail_the_run_that_finds_it_out(tmp_path):
    """As under `flwr run` with a federation whose size nobody knows before its clients are there."""
    outcome, shown = carry_out(small_config(tmp_path, data__path="missing.npz"))
    assert outcome.status == "failed"
    assert "missing.npz: window file must exist" in outcome.reason
    assert f"fedge: {outcome.reason}" in shown


def test_a_complete_run_has_nothing_left_to_do(tmp_path):
    config = small_config(tmp_path, run_name="done")
    folder = carry_out(config)[0].folder
    before = (folder / "manifest.json").read_bytes()
    outcome, shown = carry_out({**config, "resume": str(folder)})
    assert outcome.status == "completed"
    assert "is complete: 2 of 2 global rounds; raise num-server-rounds to continue" in shown
    assert (folder / "manifest.json").read_bytes() == before


def test_a_log_that_cannot_be_opened_is_one_line(tmp_path, capsys):
    """And the run that had it can be gone on with once that is fixed."""
    config = small_config(tmp_path)
    outcome, _ = carry_out(config)
    log = outcome.folder / "run.log"
    log.unlink()
    log.mkdir()
    more = {**config, "num-server-rounds": config["num-server-rounds"] + 1, "resume": str(outcome.folder)}
    capsys.readouterr()
    outcome, shown = carry_out(more)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"fedge: {outcome.reason}"
    assert "run.log must be writable, but " in line
    assert (outcome.status, outcome.exit_code, shown) == ("failed", 4, "")
    log.rmdir()
    assert carry_out(more)[0].status == "completed"


def test_a_manifest_that_may_not_stay_does_not_say_that_the_run_goes_on(tmp_path, monkeypatch):
    """It has its name, and the disk fails before it says that it keeps that; the process lives on."""
    write, failed = recorder.write_manifest, []

    def write_and_fail(*words):
        write(*words)
        if not failed:
            failed.append(words)
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(recorder, "write_manifest", write_and_fail)
    outcome, shown = carry_out(small_config(tmp_path))
    assert failed
    assert (outcome.status, outcome.exit_code) == ("failed", 4)
    assert f"fedge: {outcome.reason}\n" in shown
    manifest = read_manifest(outcome.folder)
    assert (manifest["status"], manifest["reason"]) == ("failed", outcome.reason)


def test_no_exit_within_a_run_decides_its_exit_code(tmp_path, monkeypatch):
    """sys.exit(0) of a library or a user's code would make a failed run a completed one."""
    monkeypatch.setattr(recorder.Recorder, "write_round", lambda *_: sys.exit(0))
    outcome, shown = carry_out(small_config(tmp_path))
    assert (outcome.status, outcome.exit_code) == ("failed", 4)
    assert outcome.reason.startswith("SystemExit: 0 (")
    assert f"fedge: {outcome.reason}" in shown


def test_an_interrupted_report_leaves_the_run_whole_and_open_to_go_on(tmp_path, monkeypatch):
    """The lock stayed, so that a notebook could not go on with its own run."""
    terminal, config = io.StringIO(), {**small_config(tmp_path), "report": True}

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedge.report.run_page.write_report", interrupted)
    with InProcessGrid(app, 9, config, 2) as grid, pytest.raises(KeyboardInterrupt):
        run(grid, config, IN_PROCESS.name, {"num-supernodes": 9}, lambda _: terminal)
    assert "note: the run's report is not written yet; write it with fedge report" in terminal.getvalue()
    assert "failed" not in terminal.getvalue()
    (folder,) = {path.parent for path in tmp_path.rglob("run.log")}
    assert read_manifest(folder)["status"] == "completed"
    assert carry_out({**config, "report": False, "resume": str(folder)})[0].status == "completed"


@pytest.mark.parametrize("moment", ["data:", "round 1/", "round 2/"])
def test_a_folder_that_is_renamed_during_the_run_is_one_line(tmp_path, moment):
    class Terminal(io.StringIO):
        def write(self, text):
            if text.startswith(moment) and (tmp_path / "runs" / "there").is_dir():
                (tmp_path / "runs" / "there").rename(tmp_path / "elsewhere")
            return super().write(text)

    terminal = Terminal()
    config = small_config(tmp_path, run_name="there")
    with InProcessGrid(app, 9, config, 2) as grid:
        outcome = run(grid, config, IN_PROCESS.name, {"num-supernodes": 9}, lambda _: terminal)
    assert (outcome.status, outcome.exit_code) == ("failed", 4)
    (line,) = [line for line in terminal.getvalue().splitlines() if line.startswith("fedge: ")]
    assert line == f"fedge: {outcome.reason}"
    assert "leave the run's files in place" in line
