"""Runs that are stopped before every file operation and go on: the bytes must be those of an undisturbed run.

A process of its own, which has loaded everything once and forks for every run. ``python crash_runs.py
FOLDER SAMPLE CONFIGURATION…`` prints how far it is, and at the end a line of JSON for each configuration:
what was tried and what went wrong. SAMPLE is the number of faults per configuration, or "all", which ends
after CRASH_RUNS_S seconds (environment; default: when all is done). ``python
crash_runs.py FOLDER SAMPLE planted NAME…`` plants defects in Fedge and says which trial finds each. Needs the
library of `file_faults`.
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
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import crash_points
import numpy as np
import planted
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


def forked(work, limit_s=_LIMIT_S):
    """Do `work` in a process of its own; returns what it ended with and what it returned or raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        code = 70
        try:
            if limit_s:  # its timer does not outlive another fork
                faulthandler.dump_traceback_later(limit_s, exit=True)
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
    found["manifest.json"] = manifest_of(folder)
    found["files"] = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("messages-")
    )  # fmt: skip
    return found


def manifest_of(folder):
    """Return the manifest without its times, and without what only one that went on has."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    timed = [name for name in manifest.get("outputs", {}) if name.startswith("metrics/") and "rounds" in name]
    outputs = {
        k: v for k, v in manifest.get("outputs", {}).items() if k not in (*timed, "metrics/clients.csv")
    }
    return {
        **{k: v for k, v in manifest.items() if k not in ("started", "ended", "resumed", "process")},
        "outputs": outputs,
    }


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
        self.disk = self.place / "disk"
        self.runs = self.disk / "runs"
        self.folder = self.runs / "run"
        self.config = {**BASE, **CONFIGURATIONS[name], "runs-dir": str(self.runs), "data.path": str(data)}
        self.faults = Faults()
        self.problems = []

    def clear(self):
        shutil.rmtree(self.place, ignore_errors=True)
        self.disk.mkdir(parents=True)

    def learn(self):
        """Carry the run out without a fault: what it does to the disk, and what it must always give."""
        self.clear()
        path = self.place / "log"

        def work():
            self.faults.arm(self.disk, COUNT, 0, path)
            outcome = carry_out(self.config)
            return json.dumps([outcome.status, self.faults.count])

        code, said = forked(work)
        assert code == 0, said
        status, count = json.loads(said)
        assert status == "completed", said
        self.expected = comparable(self.folder)
        self.log = power_loss.read_log(path)
        self.operations = crash_points.described(self.log)
        assert max(self.operations) <= count, (self.operations, count)
        self.kept = crash_points.kept(self.log)

    def points(self, sample):
        """Return (stratum, trial) of all trials, or of a sample of so many faults and a few others."""
        rng, turn = crash_points.generator(self.name), list(CONFIGURATIONS).index(self.name)
        count = max(self.operations)
        few = count if sample == "all" else int(sample) // 8
        firsts = rng.sample(range(1, count + 1), min(few, count))
        twice = [(("twice",), ("twice", first, rng.randrange(1, count + 1))) for first in firsts]
        faults = [(stratum, ("fault", *point)) for stratum, point in crash_points.faults(self.operations)]
        power = [((mode, *self._next(at)), ("power", mode, at, left))
                 for mode, at, left in power_loss.failures(self.log)]  # fmt: skip
        if sample != "all":
            turns = len(CONFIGURATIONS)
            faults = crash_points.stratified(faults, int(sample), turn, turns, rng)
            ends = [point for point in power if point[0][1] == "end"]  # what a run that has ended leaves
            rest = [point for point in power if point[0][1] != "end"]
            power = ends + crash_points.stratified(rest, int(sample) // 2, turn, turns, rng)
        return faults + twice + power

    def _next(self, at):
        """Return the operation before which the power fails, and its kind of file; the next that changes."""
        done = {operation.number for operation in self.log[: at - 1]}
        numbers = (operation.number for operation in self.log[at - 1 :])
        return next((self.operations[n] for n in numbers if n in self.operations.keys() - done), ("end", ""))

    def attempt(self, what, *point):
        """Carry out one trial; returns what is wrong."""
        self.clear()
        before = len(self.problems)
        {"fault": self._crash, "twice": self._crash_twice, "power": self._lose_power}[what](*point)
        return self.problems[before:]

    def _fault(self, kind, at, config=None):
        """Start the run, or go on with it, with a fault before an operation."""

        def work():
            self.faults.arm(self.disk, kind, at)
            outcome = carry_out(config or self.config)
            return json.dumps({"status": outcome.status, "reason": outcome.reason})

        return forked(work)

    def _crash(self, kind, at):
        """One fault, and what comes of it."""
        what = f"{kind} at {at} {self.operations[at]}"
        code, said = self._fault(KINDS[kind], at)
        if code not in (0, -signal.SIGKILL):
            from_us = "ConfigError" in said  # refused before it began, in one line
            self._note(what, "" if from_us else f"ended with {code}: {said}")
        elif code == 0 and "\n" in json.loads(said)["reason"]:
            self._note(what, f"more than a line: {said}")
        self._note(what, self._dishonest())
        self._note(what, self._go_on(self._safe(at)))

    def _crash_twice(self, first, second):
        """A kill, and another one when the run goes on."""
        self._fault(KILL, first)
        if (self.folder / "checkpoints").is_dir():
            self._fault(KILL, second, {**self.config, "resume": str(self.folder)})
        self._note(f"kill at {first} and {second}", self._go_on(self._safe(first)))

    def _lose_power(self, mode, at, left):
        """A power failure, after which only this is left."""
        self.disk.rmdir()
        power_loss.restore(left, self.disk)
        what = f"power lost at {at} ({mode}, before {self._next(at)})"
        self._note(what, self._dishonest(has_ended=at > len(self.log)))
        numbers = [operation.number for operation in self.log[: at - 1]]
        self._note(what, self._go_on(self._safe(max(numbers, default=0) + 1)))

    def _safe(self, at):
        """Return the round whose checkpoint must be there after a fault before an operation; -1 for none."""
        return max((global_round for number, global_round in self.kept if 0 < number < at), default=-1)

    def _go_on(self, safe):
        """Resume the run, or start it anew where nothing was begun; returns what is wrong."""

        def work():
            from fedge.config.option import ConfigError
            from fedge.run.resume import open_resumption
            from fedge.states.checkpoint import checkpoints

            config = dict(self.config)
            try:
                if checkpoints(self.folder / "checkpoints"):
                    config["resume"] = str(self.folder)
                    found = open_resumption(self.folder).checkpoint.global_round
                else:
                    shutil.rmtree(self.folder, ignore_errors=True)
                    found = -1
                if found < safe:
                    return f"goes on after round {found}, though the checkpoint of {safe} was written"
                return carry_out(config).status
            except ConfigError as error:
                return f"refused: {error}"

        code, said = forked(work)
        if code or said != "completed":
            return f"ended with {code}: {said}"
        wrong = differences(self.folder, self.expected)
        return f"differs: {wrong}" if wrong else ""

    def _dishonest(self, has_ended=False):
        """Return what is wrong with a run that says of itself that it succeeded, or had said so."""
        from fedge.config.option import ConfigError
        from fedge.records.manifest import read_manifest
        from fedge.records.outputs import damaged_outputs

        try:
            manifest = read_manifest(self.folder)
        except ConfigError as error:
            is_begun = has_ended or "is not a run folder" not in str(error)
            return f"manifest: {error}" if is_begun else ""
        if manifest["status"] != "completed":
            is_honest = manifest["status"] == "failed" and not has_ended
            return "" if is_honest else f"says {manifest['status']}"
        if damaged := damaged_outputs(self.folder, manifest):
            return f"says completed, but {damaged}"
        wrong = [name for name in differences(self.folder, self.expected) if not name.startswith("files")]
        return f"says completed, but {wrong} differ" if wrong else ""

    def _note(self, what, problem):
        if problem:
            self.problems.append(f"{self.name} {what}: {problem}"[:1500])


def warm(place, data):
    """Load all that a run loads, and find out once what never changes: versions of packages and of code."""
    import torch

    from fedge.process import versions

    torch.set_num_threads(1)
    planted.everywhere(versions.versions, cache(versions.versions))
    for name in CONFIGURATIONS:
        shutil.rmtree(place / "warm", ignore_errors=True)
        config = {**BASE, **CONFIGURATIONS[name], "runs-dir": str(place / "warm"), "data.path": str(data)}
        outcome = carry_out({**config, "num-server-rounds": 1})
        assert outcome.status == "completed", (name, outcome)


def try_all(trials, sample, limit_s):
    """Try the faults of some configurations; prints how far it is, and what there was of each.

    All of them in an order drawn by chance: as many as there is time for are a fair sample.
    """
    began = said = time.perf_counter()
    records, points = {}, []
    for trial in trials:
        trial.learn()
        of_it = trial.points(sample)
        points += [(trial, *point) for point in of_it]
        counts = {"fault": 0, "twice": 0, "power": 0, "of": len(of_it)}
        records[trial.name] = {"name": trial.name, "operations": len(trial.operations), **counts}
        records[trial.name] |= {"strata": [], "problems": trial.problems}
    if sample == "all":
        random.Random(0).shuffle(points)
    for number, (trial, stratum, (what, *point)) in enumerate(points):
        if time.perf_counter() - began > limit_s:
            break
        for problem in trial.attempt(what, *point):
            print(problem, flush=True)
        records[trial.name][what] += 1
        records[trial.name]["strata"].append(stratum)
        if time.perf_counter() - said > 60:
            said = time.perf_counter()
            print(f"so far {number + 1} of {len(points)} of {', '.join(records)}", flush=True)
    for trial in trials:
        records[trial.name]["strata"] = sorted(set(records[trial.name]["strata"]))
        print(json.dumps(records[trial.name]), flush=True)
        trial.clear()


def find_planted(name, place, data, sample):
    """Plant a defect and print the first trial of the sample that finds it."""
    defect = planted.DEFECTS[name]

    def work():
        defect.plant()
        for tried, (trial, what, *point) in enumerate(in_turn(), 1):
            if problems := trial.attempt(what, *point):
                return json.dumps({"planted": name, "tried": tried, "found": problems[0]})
        return json.dumps({"planted": name, "tried": tried, "found": ""})

    def in_turn():
        """Yield the trials of the sample, likely ones first: of the run most likely to tell, then of all."""
        rest = []
        for configuration in dict.fromkeys((defect.configuration, *CONFIGURATIONS)):
            trial = Trial(configuration, place, data)
            trial.learn()
            points = [(stratum, (trial, *point)) for stratum, point in trial.points(sample)]
            yield from (point for stratum, point in points if defect.is_likely(stratum))
            rest += [point for stratum, point in points if not defect.is_likely(stratum)]
        yield from rest

    code, said = forked(work, limit_s=0)
    assert code == 0, (name, said)
    print(said, flush=True)


def main(place, sample, names):
    place = Path(place)
    place.mkdir(parents=True, exist_ok=True)
    data = place / "windows.npz"
    write_data(data)
    warm(place, data)
    if names[:1] == ["planted"]:
        for name in names[1:] or planted.DEFECTS:
            find_planted(name, place, data, sample)
    else:
        trials = [Trial(name, place, data) for name in names or CONFIGURATIONS]
        try_all(trials, sample, float(os.environ.get("CRASH_RUNS_S", "inf")))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
