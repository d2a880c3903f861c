"""Long runs hold what they hold: memory and descriptors do not grow, and fifty kills change nothing.

The long ones run with `make soak`, which prints their figures; short versions run with all tests.
"""

import csv
import json
import os
from collections import defaultdict

import pytest
from flower_runs import comparable, flwr_run, write_overrides
from killed_runs import carry_out_with_kills, start, tiny, uninterrupted

from fedge.process.resources.growth import FIRST_ROUNDS, KIB_PER_ROUND, slope

SOAK = {"hierarchy.fraction-train": 1.0, "cluster.every": 1, "run-name": "soak"}
LEAK = """
import fedge.process.resources.memory
kept, measure = [], fedge.process.resources.memory.measure
def leaking(*words):
    {leak}
    return measure(*words)
fedge.process.resources.memory.measure = leaking
"""


def processes(folder, after):
    """Role, rounds, KiB and descriptors of each process present in all rounds after `after`."""
    found = defaultdict(list)
    with (folder / "memory.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if int(row["global_round"]) > after:
                found[row["role"], row["pid"]].append(row)
    longest = max(map(len, found.values()))
    return [
        (
            role,
            [int(row["global_round"]) for row in rows],
            [float(row["rss_mib"]) * 1024 for row in rows],
            [int(row["fds"]) for row in rows],
        )
        for (role, _), rows in found.items()
        if len(rows) == longest
    ]


def carry_out(tmp_path, rounds, code=""):
    """Run `rounds` tiny rounds in one process; returns its folder and what it showed."""
    config = {**tiny(), **SOAK, "num-server-rounds": rounds, "runs-dir": str(tmp_path / "runs")}
    process = start(code, "run", ".", "-c", write_overrides(tmp_path, config))
    output, _ = process.communicate(timeout=3600)
    assert process.returncode == 0, output
    return tmp_path / "runs" / "soak", output


@pytest.mark.extended
def test_a_hundred_rounds_hold_what_they_hold(tmp_path):
    folder, output = carry_out(tmp_path, 100)
    assert "grows steadily" not in output
    ((role, rounds, memory, descriptors),) = processes(folder, after=FIRST_ROUNDS)
    assert role == "server"
    assert len(rounds) == 80
    assert slope(rounds, memory) < KIB_PER_ROUND
    assert len(set(descriptors)) == 1


@pytest.mark.parametrize(
    ("leak", "telling"),
    [
        # pages of its own: an ordinary array would first take what the start of the run has freed
        pytest.param(
            "kept.append(mmap.mmap(-1, 100_000)); kept[-1].write(b'x' * 100_000)",
            "of memory per round",
            id="100 KB per round",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "kept.append(open(os.devnull))",
            "1.0 open files per round",
            id="one descriptor per round",
            marks=pytest.mark.extended,
        ),
    ],
)
def test_a_planted_leak_is_said_once(tmp_path, leak, telling):
    """On the terminal, in run.log and among the remarks."""
    folder, output = carry_out(tmp_path, 80, "import mmap, os" + LEAK.format(leak=leak))
    lines = [line for line in output.splitlines() if "grows steadily" in line]
    assert len({line for line in lines if telling in line}) == 1, output
    assert len(set(lines)) == 1, output
    said = lines[0].removeprefix("note: ")
    assert said in json.loads((folder / "manifest.json").read_text())["remarks"]
    assert (folder / "run.log").read_text().count(said) == 1


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["inprocess", "flower"])
def test_a_thousand_rounds_do_not_grow(tmp_path, engine):
    """After round 200: under 16 KB per round and process; no process opens descriptors for good."""
    if engine == "inprocess":
        folder, _ = carry_out(tmp_path, 1000)
    else:
        config = {**tiny(), **SOAK, "num-server-rounds": 1000, "runs-dir": str(tmp_path / "runs")}
        process = flwr_run(tmp_path, config, timeout=3600)
        folder = tmp_path / "runs" / "soak"
        assert process.returncode == 0, process.stdout + process.stderr
    assert json.loads((folder / "manifest.json").read_text())["status"] == "completed"
    for role, rounds, memory, descriptors in processes(folder, after=200):
        rise = slope(rounds, memory) * 1024
        print(
            f"{engine} {role}: {rise:.0f} bytes per round, {memory[-1] / 1024:.0f} MiB, "
            f"descriptors {min(descriptors)} to {max(descriptors)}"
        )
        assert rise < 16_000
        assert slope(rounds, [float(n) for n in descriptors]) == 0
        assert engine == "flower" or len(set(descriptors)) == 1


@pytest.mark.soak
def test_fifty_kills(tmp_path):
    """Killed at random moments of 500 rounds: the bytes of a run that nothing stopped."""
    config = {**tiny(), "num-server-rounds": 500}
    folder = carry_out_with_kills(tmp_path, config, kills=50, seed=int(os.environ.get("SOAK_SEED", "1")))
    assert comparable(folder) == comparable(uninterrupted(tmp_path, config))
    print(f"{len(json.loads((folder / 'manifest.json').read_text())['resumed'])} kills, the same bytes")
