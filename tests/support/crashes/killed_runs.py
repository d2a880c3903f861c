"""Real runs that are killed at random moments and go on."""

import json
import os
import random
import subprocess
import sys
import time

from flower_runs import ROOT, write_overrides
from small_data import nine_users

from fedge import simulate
from fedge.states.checkpoint import checkpoints

_TINY = {
    "report": False,
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
    "seed": 5,
    "cluster.every": 2,
    "hierarchy.fraction-train": 0.67,
    "run-name": "killed",
}


def tiny():
    """The configuration of a run that is soon done."""
    return {**_TINY, "data.path": nine_users()}


WITH = "import sys; sys.argv[0] = 'fedge'\nfrom fedge.cli import main\n{}\nsys.exit(main(sys.argv[1:]))"


def start(code, *words):
    """Start `fedge WORDS…` in the project's folder, in a process that runs `code` first."""
    environment = {name: value for name, value in os.environ.items() if name != "SEED"}
    return subprocess.Popen(
        [sys.executable, "-c", WITH.format(code), *words], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def uninterrupted(tmp_path, config):
    """Carry out the same run in this process, without a break."""
    with (tmp_path / "terminal.txt").open("w") as terminal:
        return simulate({**config, "runs-dir": str(tmp_path / "whole")}, terminal=terminal).folder


def rounds_done(folder):
    """The global rounds that a run's table holds."""
    table = folder / "metrics" / "global_rounds.csv"
    return max(0, table.read_bytes().count(b"\n") - 1) if table.is_file() else 0


def times_gone_on(folder):
    """Number of times that a run has been resumed, by its manifest."""
    manifest = folder / "manifest.json"
    return len(json.loads(manifest.read_text()).get("resumed", [])) if manifest.is_file() else 0


def wait_until(happened, process, what):
    """Wait until `happened()` while the process lives."""
    deadline = time.monotonic() + 300
    while not happened():
        assert process.poll() is None, f"the run ended before {what}: {process.communicate()[0]}"
        assert time.monotonic() < deadline, f"no {what} within 300 s"
        time.sleep(0.005)


def carry_out_with_kills(tmp_path, config, kills, seed, options=()):
    """Run with options, kill at random moments of random rounds, resume until done; returns the folder."""
    rng = random.Random(seed)
    rounds = config["num-server-rounds"]
    folder = tmp_path / "runs" / config["run-name"]
    words = [
        "run",
        ".",
        *options,
        "-c",
        write_overrides(tmp_path, {**config, "runs-dir": str(tmp_path / "runs")}),
    ]
    for before, last in enumerate(sorted(rng.sample(range(rounds * 9 // 10), kills))):
        process = start("", *words)
        # rows of the run before are there at once: it must have gone on, too
        wait_until(lambda last=last, before=before: times_gone_on(folder) == before
                   and rounds_done(folder) >= last and checkpoints(folder / "checkpoints"),
                   process, f"round {last}")  # fmt: skip
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.communicate()
        words = ["resume", str(folder), *options]
    process = start("", *words)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return folder
