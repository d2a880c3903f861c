"""Runs that are stopped before every file operation and go on: the bytes must be those of an undisturbed run.

A process of its own, which has loaded everything once and forks for runs that are killed. ``python
crash_trials.py FOLDER SAMPLE CONFIGURATION…`` prints how far it is, and at the end a line of JSON for each
configuration: what was tried and what went wrong. SAMPLE is the number of faults per configuration, those
of FEDGE_DAY where that is set: each day begins where the one before ended. Or it is "all", which ends after
CRASH_RUNS_S seconds (default: when all is done); CRASH_KINDS="twice,term" tries these kinds only,
CRASH_FROM=300 passes over the first 300 of each configuration. ``python crash_trials.py FOLDER SAMPLE
planted NAME…`` plants defects in Fedge and says which trial finds each. Needs the library of `file_faults`.

What a kill before an operation leaves is what the operations before it have made: most kills are made of
the log of one run, and what goes on from them is carried out once for all that leave the same. One kill in
eight is a real one, and must leave what the log says. A process that forks copies all that it touches,
which takes as long as the run itself: one run in eight goes on in a process of its own, as all do at
somebody's machine. The others go on in this one, and those that an error ends are carried out in it.
"""

import gc
import json
import os
import shutil
import signal
import sys
import time
from functools import cache
from pathlib import Path
from zlib import crc32

sys.path.insert(0, str(Path(__file__).parent))

import crash_points
import planted
import power_loss
from crash_runs import BASE, CONFIGURATIONS, carry_out, comparable, differences, forked, here, write_data
from file_faults import COUNT, FULL, KILL, KINDS, READ_ONLY, TERMINATE, TORN, Faults
from remembered import answers, remember

KILLS = ("kill", "torn")
ENDS = (KILL, TORN, TERMINATE, FULL, READ_ONLY)  # kill the process, or let it not write that it has ended
ONE_IN = 8  # kills and torn writes are real ones, the others are made of the log; runs go on in a new process


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
        self._is_unmoved = None  # by interruptions; known once it was looked at
        self.gone_on = {}  # what was there before going on → what was wrong after it

    def clear(self):
        shutil.rmtree(self.place, ignore_errors=True)
        self.disk.mkdir(parents=True)

    def learn(self):
        """Carry the run out without a fault: what it does to the disk, and what it must always give.

        It is carried out here before, with the same files, for what its clients answer: a process that forks
        from this one need not let them learn.
        """
        self.clear()
        assert carry_out(self.config).status == "completed"
        self.clear()
        known, path = answers(), self.place / "log"

        def work():
            self.faults.arm(self.disk, COUNT, 0, path)
            outcome = carry_out(self.config)
            return json.dumps([outcome.status, self.faults.count, answers()])

        code, said = forked(work)
        assert code == 0, said
        status, count, known_then = json.loads(said)
        assert status == "completed", said
        assert known_then == known, "clients are asked something else in each process"
        self.expected = comparable(self.folder)
        self.log = power_loss.read_log(path)
        self.operations = crash_points.described(self.log)
        assert max(self.operations) <= count, (self.operations, count)
        self.kept = crash_points.kept(self.log)
        self.left = power_loss.kills(self.log)
        assert power_loss.digest(self.left["kill", max(self.operations) + 1]) == self._there(), (
            "unlike its log"
        )

    def points(self, sample):
        """(stratum, trial) of all trials, or of a sample of so many faults and a few others."""
        day = int(os.environ.get("FEDGE_DAY", "0"))
        rng = crash_points.generator(self.name, day)
        count = max(self.operations)
        few = count if sample == "all" else max(1, int(sample) // 8)
        firsts = rng.sample(range(1, count + 1), min(few, count))
        twice = [(("twice",), ("twice", first, rng.randrange(1, count + 1))) for first in firsts]
        faults = [(stratum, ("fault", *point)) for stratum, point in crash_points.faults(self.operations)]
        power = [((mode, *self._next(at)), ("power", mode, at, left))
                 for mode, at, left in power_loss.failures(self.log)]  # fmt: skip
        if sample == "all":
            return crash_points.stratified(faults + twice + power, len(faults + twice + power), 0, rng)
        share = list(CONFIGURATIONS).index(self.name) / len(CONFIGURATIONS)
        interrupted = [point for point in faults if point[0][0] == "eintr"]  # a single run has them all
        faults = [point for point in faults if point[0][0] != "eintr"]
        faults = crash_points.stratified(faults, int(sample), share, rng, day)
        ends = [point for point in power if point[0][1] == "end"]  # what a run that has ended leaves
        ends = [ends[day % len(ends)]] if day and ends else ends
        rest = [point for point in power if point[0][1] != "end"]
        rest = crash_points.stratified(rest, (int(sample) + 1) // 2, share, rng, day)
        return faults + twice + ends + rest + interrupted

    def _next(self, at):
        """The operation before which the power fails, and its kind of file; the next that changes."""
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
        """Start the run, or go on with it, with a fault before an operation.

        In a process of its own where the fault ends it, or where the manifest stays that of a living run.
        """
        from fedge.config.registers.option import ConfigError
        from fedge.process.endings.exits import Interrupted, signals_as_exceptions

        def work():
            self.faults.arm(self.disk, kind, at)
            try:
                with signals_as_exceptions():
                    outcome = carry_out(config or self.config)
            except Interrupted as error:
                return json.dumps({"status": "failed", "reason": error.reason})
            except ConfigError as error:  # refused
                return json.dumps({"status": "failed", "reason": str(error)})
            finally:
                self.faults.disarm()
            return json.dumps({"status": outcome.status, "reason": outcome.reason})

        return (forked if kind in ENDS else here)(work)

    def _restore(self, left):
        """Put what is left in the place of the disk."""
        self.disk.rmdir()
        power_loss.restore(left, self.disk)

    def _there(self):
        """The digest of what is on the disk."""
        return power_loss.digest(power_loss.read(self.disk))

    def _crash(self, kind, at):
        """One fault, and what comes of it."""
        what = f"{kind} at {at} {self.operations[at]}"
        if kind == "eintr" and self._interrupted():
            return
        left, is_drawn = self.left.get((kind, at)), crc32(f"{self.name} {kind} {at}".encode()) % ONE_IN == 0
        is_complete = False
        if left is None or is_drawn:
            is_complete = self._fail(what, kind, at)
            if left is not None:
                self._note(what, power_loss.unlike(power_loss.read(self.disk), left))
        else:
            self._restore(left)
        self._note(what, self._dishonest())
        if is_drawn or not is_complete:
            self._note(what, self._go_on(self._safe(at)))

    def _interrupted(self):
        """Tell whether a run in which all operations are interrupted, each once, is as if none had been.

        Then none of them does harm; else each is tried by itself.
        """
        if self._is_unmoved is None:
            points = [point for _, (kind, point) in crash_points.faults(self.operations) if kind == "eintr"]

            def work():
                self.faults.interrupt(self.disk, points)
                outcome = carry_out(self.config)
                return json.dumps([outcome.status, self.faults.left])

            found = forked(work)
            self._is_unmoved = found == (0, '["completed", 0]') and not differences(
                self.folder, self.expected
            )
            self.clear()
        return self._is_unmoved

    def _fail(self, what, kind, at):
        """Carry out the run with a fault; tells whether it left all that it should all the same."""
        code, said = self._fault(KINDS[kind], at)
        if code not in (0, -signal.SIGKILL):
            from_us = "ConfigError" in said  # refused before it began, in one line
            self._note(what, "" if from_us else f"ended with {code}: {said}")
        elif code == 0 and "\n" in json.loads(said)["reason"]:
            self._note(what, f"more than a line: {said}")
        is_completed = code == 0 and json.loads(said)["status"] == "completed"
        return is_completed and not differences(self.folder, self.expected)

    def _crash_twice(self, first, second):
        """A kill, and another one when the run goes on."""
        left = self.left.get(("kill", first))
        if left is None:
            self._fault(KILL, first)
        else:
            self._restore(left)
        if (self.folder / "checkpoints").is_dir():
            self._fault(KILL, second, {**self.config, "resume": str(self.folder)})
        self._note(f"kill at {first} and {second}", self._go_on(self._safe(first)))

    def _lose_power(self, mode, at, left):
        """A power failure, after which only this is left."""
        self._restore(left)
        what = f"power lost at {at} ({mode}, before {self._next(at)})"
        self._note(what, self._dishonest(has_ended=at > len(self.log)))
        numbers = [operation.number for operation in self.log[: at - 1]]
        self._note(what, self._go_on(self._safe(max(numbers, default=0) + 1)))

    def _safe(self, at):
        """The round whose checkpoint must be there after a fault before an operation; -1 for none."""
        return max((global_round for number, global_round in self.kept if 0 < number < at), default=-1)

    def _go_on(self, safe):
        """Go on from what is there, unless that was done from the same; returns what is wrong."""
        from fedge.states.checkpoint import checkpoints

        if is_begun := bool(checkpoints(self.folder / "checkpoints")):
            before = self._there()
        else:  # who has no checkpoint begins anew
            shutil.rmtree(self.folder, ignore_errors=True)
            before = self._there()
        if before not in self.gone_on:
            self.gone_on[before] = self._carry_on(is_begun)
        found, wrong = self.gone_on[before]
        if found is not None and found < safe:
            return f"goes on after round {found}, though the checkpoint of {safe} was written"
        return wrong

    def _carry_on(self, is_begun):
        """Resume the run, or start it anew; returns the round that it goes on after, and what is wrong."""

        def work():
            from fedge.config.registers.option import ConfigError
            from fedge.run.preparation.resume import open_resumption

            config, found = dict(self.config), -1
            try:
                if is_begun:
                    config["resume"] = str(self.folder)
                    found = open_resumption(self.folder).checkpoint.global_round
                return json.dumps([found, carry_out(config).status])
            except ConfigError as error:
                return json.dumps([None, f"refused: {error}"])

        is_drawn = crc32(self._there()) % ONE_IN == 0
        code, said = (forked if is_drawn else here)(work)
        if code:
            return None, f"ended with {code}: {said}"
        found, status = json.loads(said)
        if status != "completed":
            return found, f"ended as {status}"
        wrong = differences(self.folder, self.expected)
        return found, f"differs: {wrong}" if wrong else ""

    def _dishonest(self, has_ended=False):
        """Faults of a run that says of itself that it succeeded, or had said so."""
        from fedge.config.registers.option import ConfigError
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
    """Load all that a run loads, and find out once what never changes or is of no account.

    That is: versions of packages and of code, and how much memory processes take.
    """
    import torch

    from fedge.process import versions
    from fedge.process.resources import memory

    torch.set_num_threads(1)
    planted.everywhere(versions.versions, cache(versions.versions))
    measured = memory.measure()
    planted.everywhere(memory.measure, lambda with_uss=False: measured)
    config = {**BASE, "runs-dir": str(place / "warm"), "data.path": str(data), "num-server-rounds": 1}
    outcome = carry_out(config)
    assert outcome.status == "completed", outcome
    remember()


def in_turn(trials, sample):
    """(trial, stratum, point) of all configurations, one of each after another: strata first."""
    kinds = set(filter(None, os.environ.get("CRASH_KINDS", "").split(",")))
    begin = int(os.environ.get("CRASH_FROM", "0"))
    queues = []
    for trial in trials:
        trial.learn()
        gc.freeze()  # a collection in a process that forked would copy all that it looks at
        points = trial.points(sample)
        points = [(stratum, point) for stratum, point in points if not kinds or kinds.intersection(point[:2])]
        queues.append([(trial, *point) for point in points[begin:]])
    longest = max(map(len, queues))
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def try_all(trials, sample, limit_s):
    """Try the faults of some configurations; prints how far it is, and what there was of each.

    Every stratum first, and one after another from then on: as many as there is time for.
    """
    began = said = time.perf_counter()
    points = in_turn(trials, sample)
    records = {
        trial.name: {
            "name": trial.name, "operations": len(trial.operations),
            "fault": 0, "interruption": 0, "twice": 0, "power": 0,
            "of": sum(trial is other for other, *_ in points), "strata": [], "problems": trial.problems,
        }
        for trial in trials
    }  # fmt: skip
    for number, (trial, stratum, (what, *point)) in enumerate(points):
        if time.perf_counter() - began > limit_s:
            break
        for problem in trial.attempt(what, *point):
            print(problem, flush=True)
        records[trial.name]["interruption" if stratum[0] == "eintr" else what] += 1
        records[trial.name]["strata"].append(stratum)
        if time.perf_counter() - said > 60:
            said = time.perf_counter()
            print(f"so far {number + 1} of {len(points)} of {', '.join(records)}", flush=True)
    for trial in trials:
        records[trial.name]["strata"] = sorted(set(records[trial.name]["strata"]))
        records[trial.name]["gone_on"] = len(trial.gone_on)
        print(json.dumps(records[trial.name]), flush=True)
        trial.clear()


def plant_all():
    """Plant each defect, in a process of its own: what a defect changes must be there."""
    for name, defect in planted.DEFECTS.items():
        code, said = forked(defect.plant)
        assert code == 0, (name, said)


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
        plant_all()
        trials = [Trial(name, place, data) for name in names or CONFIGURATIONS]
        try_all(trials, sample, float(os.environ.get("CRASH_RUNS_S", "inf")))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
