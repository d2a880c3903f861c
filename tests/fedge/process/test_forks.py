"""Runs in forks: refused where they would wait forever, and a process of its own has none of it."""

import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.whole_runs,
    pytest.mark.skipif(sys.platform != "linux", reason="forks are the custom of Linux alone"),
]

SCRIPT = """
import io, multiprocessing, sys, fedge
from fedge import ConfigError

def run(folder):
    config = {"num-server-rounds": 1, "train.local-epochs": 1, "report": False, "runs-dir": folder}
    try:
        return fedge.simulate(
            config, model="linear", data="digits", clients=6, terminal=io.StringIO()
        ).status
    except ConfigError as error:
        return str(error)

def read(folder):
    try:
        return fedge.load_run(folder + "/latest").status
    except ConfigError as error:
        return str(error)

if __name__ == "__main__":
    folder, = sys.argv[1:]
    with multiprocessing.get_context("fork").Pool(1) as pool:  # before anything has worked in this process
        print(pool.map(run, [folder, folder]))
    print(read(folder))
    for way in ("fork", "spawn"):
        with multiprocessing.get_context(way).Pool(1) as pool:
            print(pool.map(run, [folder]) + pool.map(read, [folder]))
"""


@pytest.mark.extended
def test_a_fork_of_a_process_that_had_a_run_is_refused(tmp_path):
    """Without the refusal, PyTorch crashes in the child, or Polars waits forever."""
    (tmp_path / "forks.py").write_text(SCRIPT)
    words = [sys.executable, str(tmp_path / "forks.py"), str(tmp_path / "runs")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    first, alone, forked, spawned = ended.stdout.splitlines()
    assert first == spawned == "['completed', 'completed']"
    assert alone == "completed"
    assert "simulate must not be called in a fork of a process that has carried out or read a run" in forked
    assert "load_run must not be called in a fork" in forked
