"""Benchmarks' replacements of Fedge's own parts still fit."""

import sys

from benchmarks.engines import carry_out, write_windows


def test_clients_that_do_not_train_are_believed(tmp_path):
    """Two epochs of three windows, one a step: every reply counts, or `carry_out` refuses the run."""
    data = tmp_path / "windows.npz"
    write_windows(data, [3] * 3, [2] * 3, channels=1, samples=4, classes=2)
    config = {
        "num-server-rounds": 1, "data.path": str(data), "train.model": "linear", "train.local-epochs": 2,
        "train.batch-size": 1, "scaffold.enabled": False, "report": False,
    }  # fmt: skip
    code = "from benchmarks.echo import main; main()"
    command = [sys.executable, "-c", code, "inprocess", "echo", "0"]
    run = carry_out("inprocess", config, tmp_path / "run", 3, command=command)
    assert len(run.round_s(0)) == 1
