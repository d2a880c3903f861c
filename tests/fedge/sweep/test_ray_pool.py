"""A sweep's runs as tasks of a Ray cluster: one of this machine alone, with two CPUs."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from flower_runs import comparable
from processes import MARK, leftovers, marked
from sweeps import write_sweep

from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.engine.cluster import machines
from fedge.link.reach import free_port
from fedge.sweep.ray_pool import runs_with_room

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Address of a cluster; it ends with the module."""
    folder = tmp_path_factory.mktemp("ray")
    port, mark = free_port(), f"sweep-{os.getpid()}"
    words = ["start", "--head", f"--port={port}", "--node-ip-address=127.0.0.1", "--num-cpus=2", "--block",
             "--include-dashboard=false", "--object-store-memory=100000000",
             f"--temp-dir=/tmp/fs{os.getpid()}"]  # fmt: skip
    environment = {
        **os.environ,
        MARK: mark,
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    with (folder / "ray.log").open("wb") as log:
        head = subprocess.Popen(
            [str(BIN / "ray"), *words], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, cwd=folder,
        )  # fmt: skip
    yield f"127.0.0.1:{port}"
    head.send_signal(signal.SIGTERM)
    head.wait(60)
    deadline = time.monotonic() + 20
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        process.kill()
    assert leftovers(mark) == []


def there(cluster):
    """Wait until the cluster answers."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(ConfigError):
            return machines(cluster)
    raise AssertionError("the cluster does not answer")


def write(folder, rounds=2):
    """Write the sweep file in a folder; return its path."""
    return write_sweep(folder, rounds, "checkpoint.every = 1\n")


@pytest.mark.parametrize(
    ("words", "telling"),
    [
        (["--launcher", "ray"], "--launcher ray needs a cluster, but none is given; add --address HOST:PORT"),
        (["--address", "127.0.0.1:1"], "--address needs --launcher ray"),
    ],
    ids=["no address", "no launcher"],
)
def test_refusals_are_one_line(tmp_path, monkeypatch, capsys, words, telling):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main(["sweep", str(write(tmp_path)), *words]) == 4
    error = capsys.readouterr().err
    assert telling in error
    assert error.count("\n") == 1


@pytest.mark.extended
def test_a_cluster_carries_out_the_runs_of_a_sweep(cluster, tmp_path, monkeypatch, capfd):
    """The same bits as here; once more it has nothing to do; a machine too small is refused."""
    there(cluster)
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path)
    command = ["sweep", str(path), "--launcher", "ray", "--address", cluster]
    assert main([*command, "--workers", "3"]) == 4
    assert "they have up to 2 CPUs; set --workers 2" in capfd.readouterr().err
    assert runs_with_room(cluster, 1) == 2
    assert main(command) == 0
    said = capfd.readouterr().out
    assert f"2 runs at a time on the Ray cluster at {cluster}" in said
    assert (tmp_path / "runs" / "s" / "sweep.csv").is_file()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert main(["sweep", str(write(elsewhere)), "--jobs", "1"]) == 0
    for name in ("hierfl-seed1", "hierfl-seed2"):
        assert comparable(tmp_path / "runs" / "s" / name) == comparable(elsewhere / "runs" / "s" / name)
    capfd.readouterr()
    assert main(command) == 0
    assert "(2 complete)" in capfd.readouterr().out


@pytest.mark.extended
def test_a_sweep_that_is_stopped_ends_its_tasks_and_goes_on(cluster, tmp_path):
    there(cluster)
    path, mark = write(tmp_path, rounds=3000), str(tmp_path)
    words = [str(BIN / "fedge"), "sweep", str(path), "--launcher", "ray", "--address", cluster]
    environment = {**os.environ, MARK: mark}
    with (tmp_path / "out").open("wb") as out:
        sweep = subprocess.Popen(
            words, cwd=tmp_path, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    folder = tmp_path / "runs" / "s" / "hierfl-seed1"
    table = folder / "metrics" / "global_rounds.csv"
    deadline = time.monotonic() + 120
    while not (table.is_file() and len(table.read_text().splitlines()) > 3):
        assert time.monotonic() < deadline, (tmp_path / "out").read_text()
        time.sleep(0.2)
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(60) == 130
    assert "resume with: fedge sweep" in (tmp_path / "out").read_text()
    assert json.loads((folder / "manifest.json").read_text())["status"] == "failed"
    assert leftovers(mark) == []
    tables = folder.parent.glob("*/metrics/global_rounds.csv")
    done = max(
        len(each.read_text().splitlines()) - 1 for each in tables
    )  # the runs have not come equally far
    write(tmp_path, rounds=done + 5)
    assert main([*words[1:]]) == 0
    rows = table.read_text().splitlines()
    assert len(rows) - 1 == done + 5
