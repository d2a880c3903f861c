"""Whole runs on the newest Flower that Fedge runs on: the same bits as here, nothing left, nothing edited.

`make matrix` makes its environment and carries this module out in both; alone it uses that environment if it
is there.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from flower_runs import ROOT, SMALL, comparable, write_overrides
from processes import MARK, leftovers, marked
from ray_runs import listening

from fedge import simulate
from fedge.engine.loopback import is_loopback
from fedge.flower import uses_superlink
from fedge.states.state_files import MEMORY

NEWEST = Path(os.environ.get("FEDGE_NEWEST_FLOWER") or ROOT / "build" / "flower-newest" / "bin" / "python")
CONFIG = {**SMALL, "num-server-rounds": 2, "scaffold.enabled": True}


@pytest.fixture(scope="module")
def python():
    """The Python whose Flower has a SuperLink: this one, or that of `make matrix`."""
    if uses_superlink():
        return sys.executable
    if not NEWEST.exists():
        pytest.skip(f"no environment with the newest Flower: {NEWEST} is not there; make matrix makes it")
    return str(NEWEST)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The run in this process, on the Flower that is installed."""
    folder = tmp_path_factory.mktemp("here")
    config = {**CONFIG, "seed": 5, "runs-dir": str(folder / "runs")}
    return comparable(simulate(config, clients=9, workers=2).folder)


def fedge(python, tmp_path, *words, cwd=ROOT, **variables):
    """Carry out a `fedge` command in another environment; returns the finished process."""
    environment = {**os.environ, "SEED": "5", MARK: str(tmp_path), **variables}
    environment.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", PYTHONPATH=str(ROOT))
    command = [python, "-m", "fedge.cli", *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.parametrize("engine", ["inprocess", "flower"])
def test_the_newest_flower_gives_the_same_bits(engine, python, here, tmp_path):
    """Leaves that are clustered, SCAFFOLD, an unseen client; pyproject.toml is left as it is."""
    before = (ROOT / "pyproject.toml").read_bytes()
    overrides = write_overrides(tmp_path, {**CONFIG, "runs-dir": str(tmp_path / "runs"), "run-name": "there"})
    done = fedge(python, tmp_path, "run", ".", "local-simulation", "--engine", engine, "-c", overrides)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "round 2/2" in done.stdout
    assert (ROOT / "pyproject.toml").read_bytes() == before
    folder = tmp_path / "runs" / "there"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["seed"], manifest["engine"]) == (5, engine)
    assert comparable(folder) == here
    assert leftovers(str(tmp_path), wait_s=20.0) == []


def test_a_failure_there_has_an_exit_code_and_words(python, tmp_path):
    """A leaf that lacks clients ends the run as failed, which `flwr run` calls a success."""
    words = ["-c", f"{QUICK_FAILURE} runs-dir='{tmp_path / 'runs'}' run-name='fails'"]
    done = fedge(python, tmp_path, "run", ".", "local-simulation", "--engine", "flower", *words)
    assert done.returncode == 4, done.stdout + done.stderr
    assert json.loads((tmp_path / "runs" / "fails" / "manifest.json").read_text())["status"] == "failed"
    assert "guard.start-timeout: " in done.stdout + done.stderr
    assert leftovers(str(tmp_path), wait_s=20.0) == []


# no client can answer in so short a time
QUICK_FAILURE = "num-server-rounds=2 report=false data.path='synthetic' guard.start-timeout=0.01"


@pytest.mark.extended
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_a_run_there_that_is_stopped_leaves_nothing_and_goes_on(python, tmp_path, ray_home, signum):
    """After a round or two, on Ray; it goes on there, to the bits of a run that was not stopped.

    What is gone: its processes, its ports, Ray's folder, the SuperLink's home.
    """
    config = {**CONFIG, "runs-dir": str(tmp_path / "runs"), "checkpoint.every": 1, "num-server-rounds": 40}
    overrides = write_overrides(tmp_path, {**config, "run-name": "there"})
    words = ["run", ".", "local-simulation", "--engine", "flower", "-c", overrides]
    own = {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")}
    for place in own.values():
        Path(place).mkdir()
    environment = {**os.environ, "SEED": "5", MARK: str(tmp_path), "PYTHONPATH": str(ROOT), **own}
    environment.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0")
    environment.pop("FLWR_HOME", None)
    with (tmp_path / "said").open("wb") as out:
        run = subprocess.Popen(
            [python, "-m", "fedge.cli", *words], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    folder = tmp_path / "runs" / "there"
    table, deadline = folder / "metrics" / "global_rounds.csv", time.monotonic() + 240
    while not (table.is_file() and len(table.read_text().splitlines()) > 2):
        assert run.poll() is None, (tmp_path / "said").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    processes = marked(str(tmp_path))
    sockets, held = listening(processes), states_of(processes)
    assert {"raylet", "gcs_server"} <= {name for name, _, _ in sockets}, sockets
    assert not [socket for socket in sockets if not is_loopback(socket[1])]
    assert len(list(ray_home.iterdir())) == 1
    assert [place.name for place in Path(own["TMPDIR"]).glob("fedge-*")]
    run.send_signal(signum)
    code = run.wait(90)
    assert code == (130 if signum == signal.SIGINT else -9), (tmp_path / "said").read_text()
    left = leftovers(str(tmp_path), wait_s=60.0)
    assert left == [], [process.cmdline() for process in left]
    assert [*ray_home.iterdir(), *(path for path in held if path.exists())] == []
    assert list(Path(own["TMPDIR"]).glob("fedge-*")) == []
    assert list(Path(own["HOME"]).rglob(".flwr")) == []
    assert not {(ip, port) for _, ip, port in sockets} & {(ip, port) for _, ip, port in everybody_s()}
    goes_on_as_if_nothing_had_been(python, tmp_path, folder)


def states_of(processes):
    """Files in memory of processes."""
    return [path for process in processes for path in MEMORY.glob(f"fedge-states-{process.pid}-*")]


def everybody_s():
    """The sockets that this machine's processes listen on."""
    return listening(psutil.process_iter())


def goes_on_as_if_nothing_had_been(python, tmp_path, folder):
    """Let a run go on for a round where it was; it has the bits of a run that was not stopped."""
    done = len((folder / "metrics" / "global_rounds.csv").read_text().splitlines()) - 1
    assert 2 <= done < 40
    last = fedge(
        python, tmp_path, "resume", folder, "--engine", "flower", "-c", f"num-server-rounds={done + 1}"
    )
    assert last.returncode == 0, last.stdout + last.stderr
    whole = {**CONFIG, "seed": 5, "runs-dir": str(tmp_path / "whole"), "num-server-rounds": done + 1}
    assert comparable(folder) == comparable(simulate(whole, clients=9, workers=2).folder)
    assert leftovers(str(tmp_path), wait_s=60.0) == []
