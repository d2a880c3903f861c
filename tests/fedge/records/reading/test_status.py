"""`fedge status` and the reader of manifests behind it."""

import io
import json
import os
import shutil
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from small_runs import small_config

from fedge import simulate
from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.process.identity import this_process
from fedge.records.folder import find_run
from fedge.records.lock import RunLock
from fedge.records.manifest import read_manifest
from fedge.records.reading.status import read_status, status_lines
from fedge.run.preparation.resume import open_resumption

EMPTY = partial(Path.write_bytes, data=b"")
LOST = "next: restore the files from a copy, or start the run again"
HEADER = "global_round,test_accuracy_mean,seconds\n"


@pytest.fixture
def make_run(tmp_path):
    """A maker of runs: manifest entries and the text of global_rounds.csv."""

    def make(rows="", name="first", **manifest):
        folder = tmp_path / "runs" / name
        (folder / "metrics").mkdir(parents=True)
        whole = {
            "status": "running",
            "process": this_process(),
            "config": {"num-server-rounds": 10},
            **manifest,
        }
        (folder / "manifest.json").write_text(json.dumps(whole))
        (folder / "metrics" / "global_rounds.csv").write_text(HEADER + rows)
        link = tmp_path / "runs" / "latest"
        link.unlink(missing_ok=True)
        link.symlink_to(name)
        return folder

    return make


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def first_line(path):
    path.write_text(path.read_text().splitlines(keepends=True)[0])


def status(folder, capsys, *words):
    """Exit code and lines of `fedge status` beside the run."""
    code = main(["status", *words, "--runs-dir", str(folder.parent)])
    out, err = capsys.readouterr()
    return code, (out + err).splitlines()


def test_a_run_that_goes_on(make_run, capsys):
    """Two whole rows of 1 and 3 seconds, and one that is being written."""
    folder = make_run("1,0.5,1.0\n2,0.6,3.0\n3,0.7")
    os.utime(folder / "metrics" / "global_rounds.csv", (0, datetime(2025, 1, 2, 3, 4, 5).timestamp()))
    code, lines = status(folder, capsys)
    assert code == 1
    assert lines == [
        "first: running, global round 2 of 10",
        "2.0 s per round, last one at 2025-01-02 03:04:05",
    ]


def test_seconds_per_round_are_those_of_the_last_ten(make_run):
    rows = "".join(f"{k},0.5,{100.0 if k <= 5 else 1.0}\n" for k in range(1, 16))
    assert read_status(make_run(rows)).seconds_per_round == 1.0


@pytest.mark.parametrize(
    ("manifest", "code", "lines"),
    [
        ({"status": "completed", "exit_code": 0}, 0, ["first: completed, global round 1 of 10"]),
        ({"status": "partial", "exit_code": 3}, 3, ["first: partial, global round 1 of 10"]),
        ({"status": "partial"}, 3, ["first: partial, global round 1 of 10"]),  # of an older version
        (
            {"status": "failed", "exit_code": 4, "reason": "boom"},
            4,
            ["first: failed, global round 1 of 10", "reason: boom",
             "next: see {}/run.log, then fedge resume {}"],
        ),
        (
            {"status": "failed", "exit_code": 5, "reason": "stalled: …"},
            5,
            ["first: failed, global round 1 of 10", "reason: stalled: …",
             "next: see {}/run.log, then fedge resume {}"],
        ),
        (
            {"status": "failed", "exit_code": 130, "reason": "interrupted"},
            130,
            ["first: failed, global round 1 of 10", "reason: interrupted", "next: fedge resume {}"],
        ),
        (
            {"status": "failed", "exit_code": 130, "reason": "interrupted", "engine": "leaves"},
            130,
            [
                "first: failed, global round 1 of 10",
                "reason: interrupted",
                "next: fedge resume {} --leaves HOST:PORT",
            ],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("word", ["latest", "first", "folder"])
def test_the_exit_code_is_the_runs(make_run, capsys, word, manifest, code, lines):
    folder = make_run("1,0.5,1.0\n", **manifest)
    assert status(folder, capsys, str(folder) if word == "folder" else word)[0] == code
    shown = status_lines(read_status(folder))
    shown.pop(1)  # seconds and time
    assert shown == [line.format(*[folder] * line.count("{}")) for line in lines]


def test_a_run_that_failed_before_its_first_round(make_run, capsys):
    folder = make_run(status="failed", exit_code=4, reason="no\nclient")
    assert status(folder, capsys)[1] == [
        "first: failed, global round 0 of 10",
        "reason: no client",
        f"cannot be resumed: resume needs an intact checkpoint, but {folder} has none: it was stopped before "
        "the first, checkpoint.every is 0, or it is not a run; start a new run",
        f"next: see {folder}/run.log, fix the cause and start the run again",
    ]


def test_a_process_that_is_gone(make_run, capsys):
    """Its start time is another's: the run died, and the manifest on disk could not say so."""
    gone = {**this_process(), "start": 1}
    folder = make_run("1,0.5,1.0\n", process=gone)
    code, lines = status(folder, capsys)
    assert code == 4
    assert lines[0] == "first: failed, global round 1 of 10"
    assert lines[2].startswith(f"reason: died: process {os.getpid()} ended without notice")
    assert read_manifest(folder)["exit_code"] == 4
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"


def test_a_process_that_cannot_be_seen_is_alive_while_it_holds_its_lock(make_run, capsys):
    """In another container, or hidden from this account, its id is not listed here."""
    folder = make_run("1,0.5,1.0\n", process={**this_process(), "pid": 2**22 + 1})
    lock = RunLock(folder)
    assert status(folder, capsys)[0] == 1
    assert read_manifest(folder)["status"] == "running"
    lock.close()
    assert status(folder, capsys)[0] == 4


def test_a_process_of_another_machine_is_believed(make_run):
    folder = make_run(process={**this_process(), "host": "elsewhere", "boot": "x", "start": 1})
    assert read_manifest(folder)["status"] == "running"


@pytest.mark.parametrize("rows", ["x,y,z\n", "1\n", ",,\n", "1,2,nine\n", "\x00\n", '"\n'])
def test_damaged_rows_do_not_count(make_run, rows):
    found = read_status(make_run("1,0.5,2.0\n" + rows))
    assert (found.last_round, found.seconds_per_round) == (1, 2.0)


def test_tables_that_are_missing(make_run):
    folder = make_run()
    (folder / "metrics" / "global_rounds.csv").unlink()
    assert read_status(folder).last_row is None


@pytest.mark.parametrize("run", ["none", "a\0b", "x" * 5000, "\n"])
def test_no_such_run(tmp_path, capsys, run):
    assert main(["status", run, "--runs-dir", str(tmp_path)]) == 4
    error = capsys.readouterr().err
    assert error.startswith("fedge: RUN must be a run folder or a name under ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["status", "report", "resume", "predict"])
def test_before_the_first_run_the_next_step_is_said(command, tmp_path, capsys, monkeypatch):
    """A newcomer did not type the default, "latest"."""
    monkeypatch.chdir(tmp_path)
    words = [command, "latest", "windows.npz"] if command == "predict" else [command]
    assert main(words) == 4
    assert capsys.readouterr().err == (
        "fedge: there is no run yet in runs; start one with `fedge run`, or name its folder\n"
    )


def test_a_folder_without_a_manifest(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert find_run("empty", str(tmp_path)) == tmp_path / "empty"
    with pytest.raises(ConfigError, match=r"is not a run folder: it has no manifest\.json"):
        read_status(tmp_path / "empty")
    assert main(["status", "empty", "--runs-dir", str(tmp_path)]) == 4


@pytest.mark.parametrize(
    ("gone", "damage", "step"),
    [
        ("metrics", shutil.rmtree, LOST),
        ("metrics/clients.csv", Path.unlink, LOST),
        ("metrics/servers.csv", EMPTY, LOST),
        ("metrics/servers.csv", half, LOST),
        ("metrics/clients.csv", first_line, LOST),
        ("checkpoints", shutil.rmtree, LOST),
        ("metrics/confusion.json", half, "next: fedge resume"),
        ("metrics/confusion.json", EMPTY, "next: fedge resume"),
        ("checkpoints/final.safetensors", Path.unlink, "next: fedge resume"),
        ("checkpoints/final.safetensors", EMPTY, "next: fedge resume"),
    ],
)
def test_a_run_is_said_to_go_on_where_it_can(tmp_path, capsys, gone, damage, step):
    """A checkpoint has the models, but of tables only how long they were."""
    folder = Path(simulate(small_config(tmp_path), terminal=io.StringIO()).folder)
    there = folder / gone
    damage(there)
    lines = status(folder, capsys)[1]
    assert lines[-1].startswith(step)
    if "resume" not in step:
        with pytest.raises(ConfigError, match="start a new run") as error:
            open_resumption(folder)
        assert lines[-2] == f"cannot be resumed: {error.value}"
    else:
        open_resumption(folder)
