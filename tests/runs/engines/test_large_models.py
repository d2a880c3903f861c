"""Models that go through state files on Ray, in real runs."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from flower_runs import ROOT, SERVING, comparable, flwr_run, write_overrides
from small_data import nine_users

from fedge import simulate

_SMALL = {
    "report": False,
    "num-server-rounds": 2,
    "hierarchy.leaf-rounds": 2,
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
}


def small():
    """The configuration of a run that is soon done."""
    return {**_SMALL, "data.path": nine_users()}


def state_folders():
    """The state folders of all runs of this machine by the run folder that they name."""
    return {
        (folder / "owner").read_text().strip(): folder
        for folder in Path("/dev/shm").glob("fedge-states-*")
        if (folder / "owner").is_file()
    }


OFFERS = {**SERVING, "scaffold.levels": 2}
POOL = {"cluster.method": "ifca", "cluster.count": "2", "cluster.probe-every": 0, "gate.enabled": False}


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no file system in memory at /dev/shm")
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(OFFERS, id="offers", marks=pytest.mark.extended),
        pytest.param(POOL, id="pool", marks=pytest.mark.extended),
    ],
)
def test_files_give_the_bits_of_a_run_in_process_on_ray(tmp_path, kinds):
    """The threshold at 0: models, metrics and counted bytes are those of a run in process; no file is left.

    All kinds of states travel: several offers per leaf, lines beside them, models for known clients and for
    unseen clients, control variates of two levels; and the cloud's own models. Messages on Ray are compared
    with runs in process in test_flower.py.
    """
    many = {**small(), **kinds, "partition.unseen-clients": 1}
    config = {**many, "transfer.share-above-mb": 0.0, "runs-dir": str(tmp_path / "files")}
    process = flwr_run(tmp_path, config)
    run = tmp_path / "files" / "latest"
    assert json.loads((run / "manifest.json").read_text())["status"] == "completed", process.stdout
    assert "models go through files in /dev/shm" in (run / "run.log").read_text()
    assert str(run.resolve()) not in state_folders()
    assert not list(run.glob("*states*"))
    files = comparable(run)
    with (tmp_path / "terminal.txt").open("w") as terminal:
        outcome = simulate({**many, "seed": 5, "runs-dir": str(tmp_path / "inprocess")}, terminal=terminal)
    in_process = comparable(outcome.folder)
    for part in files:
        assert files[part] == in_process[part], f"{part} differs"


@pytest.mark.extended
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no file system in memory at /dev/shm")
def test_the_next_run_removes_what_a_killed_run_left(tmp_path, ray_home):
    """Killed in the middle with all its processes: files stay in memory until the next run, on any engine."""
    runs = str(tmp_path / "runs")
    config = {
        **small(), "num-server-rounds": 10_000, "train.lr-decay": 1.0, "transfer.share-above-mb": 0.0,
        "runs-dir": runs,
    }  # fmt: skip
    program = Path(sys.executable).parent / "flower-simulation"
    words = ["--app", ".", "--num-supernodes", "9", "--run-config", write_overrides(tmp_path, config)]
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [program, *words], cwd=ROOT, stdout=output, stderr=output, start_new_session=True,
            env={**os.environ, "SEED": "5"},
        )  # fmt: skip
    try:
        left = wait_for_files(tmp_path / "runs", process)
        owner = (left / "owner").open()
        # takes the lock the moment the run dies: else a run of a test beside this one may remove the files
        heir = threading.Thread(target=fcntl.flock, args=(owner, fcntl.LOCK_SH))
        heir.start()
    finally:
        started = [*psutil.Process(process.pid).children(recursive=True), process]
        for one in started:
            one.send_signal(signal.SIGKILL)
        process.wait()
    heir.join(20)
    assert list(left.glob("server-*"))
    owner.close()
    with (tmp_path / "terminal.txt").open("w") as terminal:
        simulate({**small(), "num-server-rounds": 1, "runs-dir": runs}, terminal=terminal)
    assert not left.exists()


def wait_for_files(runs, process):
    """The state folder of the run under `runs` once it has written a round."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended by itself"
        for run, folder in state_folders().items():
            table = Path(run) / "metrics" / "clients.csv"
            if Path(run).is_relative_to(runs) and table.is_file() and table.read_text().count("\n") > 9:
                return folder
        time.sleep(0.05)
    raise AssertionError("no state folder within 120 s")
