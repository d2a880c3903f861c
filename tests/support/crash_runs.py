"""Runs that are stopped before every file operation and go on: the bytes must be those of an undisturbed run.

A process of its own, which has loaded everything once and forks for every run. ``python crash_runs.py
FOLDER SAMPLE CONFIGURATION…`` prints a line of JSON per configuration: operations, faults tried, and what
went wrong. SAMPLE is the number of faults per configuration, or "all". Needs the library of `file_faults`.
"""

import csv
import faulthandler
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import power_loss
from file_faults import COUNT, KILL, KINDS, Faults

ROUNDS = 3
CLIENTS = 6
BASE = {
    "report": False, "run-name": "run", "num-server-rounds": ROUNDS, "seed": 3, "hierarchy.num-servers": 2,
    "train.model": "linear", "train.local-epochs": 1, "train.batch-size": 16, "data.guard-windows": 0,
}  # fmt: skip
CONFIGURATIONS = {
    "default": {"cluster.tau": 0.3, "train.model": "mlp-tiny"},
    "fedge": {
        "hierarchy.num-servers": 3, "cluster.signal": "affinity", "cluster.method": "agglomerative",
        "cluster.count": "auto", "cluster.level": 0.5, "cluster.patience": 2, "cluster.probe-every": 1,
        "gate.enabled": False, "personal.leaf-rounds": 1, "personal.every": 2,
    },
    "levels2": {"scaffold.levels": 2, "gate.enabled": False, "hierarchy.leaf-rounds": 2},
    "fedadam": {"leaf.strategy": "fedadam", "scaffold.enabled": False, "train.model": "mlp-tiny"},
    "dp": {
        "privacy.kind": "server-fixed", "privacy.noise-multiplier": 0.5, "scaffold.enabled": False,
    },
    "partial": {"hierarchy.fraction-train": 0.67, "cluster.every": 2, "checkpoint.every": 2},
    "ifca": {
        "cluster.method": "ifca", "cluster.count": "2", "gate.enabled": False, "scaffold.enabled": False,
    },
    "unseen": {"partition.unseen-clients": 1, "scenario": "rotate", "personal.unseen-clients": "cluster"},
}  # fmt: skip
_LIMIT_S = 60


def write_data(path):
    """Write windows of six users that a softmax regression can tell apart."""
    from hhar.windows.window_file import Windows, save_windows

    rng = np.random.default_rng(0)
    y = np.tile(np.repeat(np.arange(3), 10), CLIENTS)
    x = rng.normal(size=(len(y), 3, 8)) + y[:, None, None]
    user = np.repeat([f"u{k}" for k in range(CLIENTS)], 30)
    save_windows(
        path, Windows(x.astype(np.float32), y, user, None, None, ("p", "q", "r"), ("acc_x", "acc_y", "acc_z"))
    )


def carry_out(config):
    """Carry out a run in this process; returns its outcome."""
    from fedge.engine.federation import Federation
    from fedge.launch import simulate
    from fedge.launch.preflight import check

    federation = Federation(CLIENTS)
    prepared = check(config, federation)
    with open(os.devnull, "w") as nowhere:
        return simulate.run_in_process(config, federation, 1, nowhere, prepared=prepared)


def forked(work):
    """Do `work` in a process of its own; returns what it ended with and what it printed last."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        code = 70
        try:
            faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
            text = work()
            os.write(writer, str(text or "").encode())
            code = 0
        except BaseException:
            os.write(writer, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(writer)
    said = b""
    while more := os.read(reader, 65536):
        said += more
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.decode(errors="replace")


def comparable(folder):
    """Return the bytes that must be equal in equal runs, columns of times left out."""
    names = ("checkpoints/final.safetensors", "clusters.jsonl", "metrics/confusion.json", "partition.csv")
    found = {name: (folder / name).read_bytes() if (folder / name).is_file() else None for name in names}
    for name in ("global_rounds", "leaf_rounds", "clients"):
        path = folder / "metrics" / f"{name}.csv"
        rows = list(csv.reader(path.read_text().splitlines())) if path.is_file() else [[]]
        kept = [i for i, column in enumerate(rows[0]) if "second" not in column]
        found[name] = [[row[i] for i in kept] for row in rows]
    found["files"] = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("messages-")
    )  # fmt: skip
    return found


def differences(folder, expected):
    """Return the names of what differs."""
    found = comparable(folder)
    return [
        f"{name}: {sorted(set(found[name]) ^ set(expected[name]))}" if name == "files" else name
        for name in expected if found[name] != expected[name]
    ]  # fmt: skip


class Trial:
    """One configuration."""

    def __init__(self, name, place, data):
        self.name = name
        self.place = place / name
        self.runs = self.place / "runs"
        self.folder = self.runs / "run"
        self.config = {**BASE, **CONFIGURATIONS[name], "runs-dir": str(self.runs), "data.path": str(data)}
        self.faults = Faults()
        self.problems = []
        self.tried = 0

    def clear(self):
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)

    def fault(self, kind, at, config=None):
        """Start the run, or go on with it, with a fault before an operation."""

        def work():
            self.faults.arm(self.runs, kind, at)
            outcome = carry_out(config or self.config)
            return json.dumps(
                {"status": outcome.status, "reason": outcome.reason, "count": self.faults.count}
            )

        return forked(work)

    def undisturbed(self):
        """Carry the run out without a fault; returns its number of operations."""
        self.clear()
        code, said = self.fault(COUNT, 0)
        assert code == 0, said
        ended = json.loads(said)
        assert ended["status"] == "completed", said
        self.expected = comparable(self.folder)
        return ended["count"]

    def go_on(self):
        """Resume the run, or start it anew where nothing was begun; returns what is wrong."""

        def work():
            from fedge.config.option import ConfigError
            from fedge.states.checkpoint import checkpoints

            config = dict(self.config)
            if checkpoints(self.folder / "checkpoints"):
                config["resume"] = str(self.folder)
            else:
                shutil.rmtree(self.folder, ignore_errors=True)
            try:
                return carry_out(config).status
            except ConfigError as error:
                return f"refused: {error}"

        code, said = forked(work)
        if code or said != "completed":
            return f"ended with {code}: {said}"
        wrong = differences(self.folder, self.expected)
        return f"differs: {wrong}" if wrong else ""

    def honest(self):
        """Return what is wrong with a run that says of itself that it succeeded."""
        from fedge.config.option import ConfigError
        from fedge.records.manifest import read_manifest
        from fedge.records.outputs import damaged_outputs

        try:
            manifest = read_manifest(self.folder)
        except ConfigError as error:
            return "" if "is not a run folder" in str(error) else f"manifest: {error}"
        if manifest["status"] != "completed":
            return "" if manifest["status"] == "failed" else f"says {manifest['status']}"
        if damaged := damaged_outputs(self.folder, manifest):
            return f"says completed, but {damaged}"
        wrong = [name for name in differences(self.folder, self.expected) if not name.startswith("files")]
        return f"says completed, but {wrong} differ" if wrong else ""

    def note(self, what, problem):
        if problem:
            self.problems.append(f"{self.name} {what}: {problem}"[:1500])

    def crash(self, kind, at):
        """One fault, and what comes of it."""
        self.clear()
        self.tried += 1
        code, said = self.fault(KINDS[kind], at)
        if code not in (0, -signal.SIGKILL):
            from_us = "ConfigError" in said  # refused before it began, in one line
            self.note(f"{kind} at {at}", "" if from_us else f"ended with {code}: {said}")
        elif code == 0 and "\n" in json.loads(said)["reason"]:
            self.note(f"{kind} at {at}", f"more than a line: {said}")
        self.note(f"{kind} at {at}", self.honest())
        self.note(f"{kind} at {at}", self.go_on())

    def crash_twice(self, first, second):
        """A kill, and another one when the run goes on."""
        self.clear()
        self.tried += 1
        self.fault(KILL, first)
        if (self.folder / "checkpoints").is_dir():
            self.fault(KILL, second, {**self.config, "resume": str(self.folder)})
        self.note(f"kill at {first} and {second}", self.go_on())

    def lose_power(self, log, at, mode):
        """A power failure before an operation, after which only what was synced is there."""
        self.clear()
        self.tried += 1
        power_loss.restore(log, at, mode, self.runs)
        self.note(f"power lost at {at} ({mode})", self.honest())
        self.note(f"power lost at {at} ({mode})", self.go_on())

    def logged(self):
        """Carry the run out and return the log of its operations."""
        self.clear()
        path = self.place / "log"

        def work():
            self.faults.arm(self.runs, COUNT, 0, path)
            return carry_out(self.config).status

        code, said = forked(work)
        assert (code, said) == (0, "completed"), said
        return power_loss.read_log(path)


def points(rng, kinds, count, sample):
    """Return (kind, operation) of all faults, or of some."""
    found = [(kind, at) for kind in kinds for at in range(1, count + 1)]
    return found if sample == "all" else rng.sample(found, min(int(sample), len(found)))


def warm(place, data):
    """Load all that a run loads."""
    import torch

    torch.set_num_threads(1)
    for name in CONFIGURATIONS:
        shutil.rmtree(place / "warm", ignore_errors=True)
        config = {**BASE, **CONFIGURATIONS[name], "runs-dir": str(place / "warm"), "data.path": str(data)}
        outcome = carry_out({**config, "num-server-rounds": 1})
        assert outcome.status == "completed", (name, outcome)


def main(place, sample, names):
    place = Path(place)
    place.mkdir(parents=True, exist_ok=True)
    data = place / "windows.npz"
    write_data(data)
    warm(place, data)
    for name in names:
        began = time.perf_counter()
        trial, rng = Trial(name, place, data), random.Random(name)
        count = trial.undisturbed()
        for kind, at in points(rng, KINDS, count, sample):
            trial.crash(kind, at)
        faults = trial.tried
        few = count if sample == "all" else int(sample) // 8
        for first in rng.sample(range(1, count + 1), min(few, count)):
            trial.crash_twice(first, rng.randrange(1, count + 1))
        twice = trial.tried - faults
        log = trial.logged()
        for mode, at in points(
            rng, power_loss.MODES, len(log), "all" if sample == "all" else int(sample) // 3
        ):
            trial.lose_power(log, at, mode)
        print(json.dumps({
            "name": name, "operations": count, "faults": faults, "twice": twice,
            "power": trial.tried - faults - twice, "problems": trial.problems,
            "seconds": round(time.perf_counter() - began, 1),
        }), flush=True)  # fmt: skip
        trial.clear()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] or list(CONFIGURATIONS))
