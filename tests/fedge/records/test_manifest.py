"""The one reader of manifests: whoever asks is told the same; an odd manifest never ends in a traceback."""

import json
import os

import numpy as np
import pytest
from run_folders import round_result, write_run

from fedge import load_run
from fedge.cli import main
from fedge.config.registers.parts import TASKS
from fedge.config.sections.train import TrainConfig
from fedge.process.identity import this_process
from fedge.records.manifest import RunFolderError, invalid_entries, read_manifest
from fedge.records.reading.status import read_status, status_lines
from fedge.report.listing import line_of_run
from fedge.tasks import Score, Task
from fedge.tasks.configured import least_loss_of, scores_of, task_entry

DAMAGED = ["", "{", "[]", "3", '{"status": "fine"}', '{"status": ["running"]}', "{}", "[" * 100_000,
           "\x00", "\ud800", '{"status": "running", "seed": ' + "9" * 5000 + "}"]  # fmt: skip
ODD = [
    3,
    -1,
    10**400,
    "ten",
    "",
    [],
    [[1]],
    ["a"],
    {},
    {"a": {}},
    {"a": "b"},
    None,
    True,
    float("inf"),
    float("nan"),
]


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "runs" / "first", [round_result(1, [5, 6, 7, 8])], planned=3)


def change(folder, **entries):
    """Replace entries of a manifest."""
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def told(folder, capsys):
    """Status and exit code: by `fedge status`, `fedge runs`, `fedge.load_run` and `read_manifest`."""
    code = main(["status", folder.name, "--runs-dir", str(folder.parent)])
    status = capsys.readouterr().out.splitlines()[0].split(": ")[1].split(",")[0]
    assert main(["runs", "--runs-dir", str(folder.parent)]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(folder.name)]
    run, manifest = load_run(folder), read_manifest(folder)
    return [(status, code), (row.split()[1], code), (run.status, run.exit_code),
            (manifest["status"], manifest["exit_code"])]  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"status": "running", "process": this_process()}, ("running", 1)),
        ({"status": "running", "process": {**this_process(), "start": 1}}, ("failed", 4)),
        ({"status": "running", "process": {**this_process(), "host": "elsewhere"}}, ("running", 1)),
        ({"status": "completed", "exit_code": 0}, ("completed", 0)),
        ({"status": "partial"}, ("partial", 3)),
        ({"status": "failed", "exit_code": 130, "reason": "interrupted"}, ("failed", 130)),
    ],
)
def test_everybody_is_told_the_same(folder, capsys, entries, expected):
    change(folder, **entries)
    assert told(folder, capsys) == [expected] * 4
    assert load_run(folder).reason == read_status(folder).reason
    if expected == ("failed", 4):
        assert load_run(folder).reason.startswith(f"died: process {os.getpid()} ended without notice")
        assert json.loads((folder / "manifest.json").read_text())["status"] == "running"


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_manifest_is_one_line(folder, capsys, content):
    (folder / "manifest.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    for words in (["status", "first"], ["report", "first"], ["compare", "first", "first"]):
        assert main([*words, "--runs-dir", str(folder.parent)]) == 4
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("fedge: manifest.json must be a run's manifest, but ")
        assert " is damaged: " in line
        assert line.endswith("; inspect the folder by hand")
    with pytest.raises(RunFolderError, match="is damaged"):
        load_run(folder)
    assert main(["runs", "--runs-dir", str(folder.parent)]) == 0
    assert "first  unreadable" in capsys.readouterr().out


@pytest.mark.parametrize(
    "manifest",
    [
        {"config": 3}, {"config": {}}, {"process": 3}, {"process": {}}, {"exit_code": "x"}, {"reason": [1]},
        {"config": {"num-server-rounds": "ten"}},
    ],
)  # fmt: skip
def test_entries_of_the_wrong_kind_are_left_out(folder, manifest):
    change(folder, **{"status": "running", "process": this_process(), **manifest})
    found = read_status(folder)
    assert found.status == "running"
    assert status_lines(found)


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
def test_no_odd_entry_is_a_traceback(folder, odd):
    """One after the other, in each entry, in each option, and in all of them."""
    whole = json.loads((folder / "manifest.json").read_text())
    whole = {
        **whole,
        "resumed": [],
        "remarks": [],
        "scenario": None,
        "process": {},
        "exit_code": 0,
        "reason": "",
    }
    del whole["status"]
    changes = [{key: odd} for key in whole] + [{"config": dict.fromkeys(whole["config"], odd)}]
    for entries in [*changes, dict.fromkeys(whole, odd)]:
        change(folder, **{**whole, **entries})
        run = load_run(folder)
        assert (run.status, run.truth) == ("completed", None), entries
        assert line_of_run(folder).status == "completed"
        assert status_lines(read_status(folder))[0].startswith("first: completed, global round 1")
    if odd not in (3, [[1]], {"a": {}}, None):
        return  # pages take seconds
    for words in (["report", "first"], ["compare", "first", "first", "-o", str(folder / "compare.html")]):
        assert main([*words, "--runs-dir", str(folder.parent)]) == 0, words


@pytest.mark.parametrize(
    "bound",
    [0, -1, -1e30, -1e300, -(10**25), -np.inf, np.float32(-2), np.float64(-1e20), np.int64(-3)],
    ids=repr,
)
def test_a_task_of_any_bounds_is_read_back(bound):
    """A least loss of -1e30 was no number to the reader, which took the run for one of classification."""

    class Own(Task):
        least_loss = bound
        scores = (Score("gain", lambda sums: 0.0, higher_is_better=True, lowest=bound, highest=-bound),)

    name = TASKS.given(Own)
    try:
        written = json.loads(json.dumps(task_entry(TrainConfig(task=name))))
    finally:
        TASKS.forget(name)
    assert invalid_entries({"task": written}, ["task"]) == []
    (score,), _ = scores_of(written)
    assert (score.name, score.lowest, score.highest) == ("gain", float(bound), -float(bound))
    assert least_loss_of(written) == float(bound)
