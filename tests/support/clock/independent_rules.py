"""Parts of the second simulator of the virtual clock: cases, chance, and rules from the papers' formulas."""

import math
from dataclasses import dataclass, field

import numpy as np

US = 10**6


@dataclass
class Case:
    """A run: who is there, how fast, under which rules."""

    leaves: list  # of lists of devices
    windows: list
    seed: int
    rule: str
    arguments: dict
    places: int  # over all leaves
    fleet: dict
    start: np.ndarray
    variances: np.ndarray
    availability: str = "always"
    availability_arguments: dict = field(default_factory=dict)
    selection: str = "uniform"
    selection_arguments: dict = field(default_factory=dict)
    dropout: float = 0.0
    partial: bool = False  # what is left of a job in time counts
    batch: int = 32
    max_staleness: int = 0
    timeout: float = 0.0
    refill: int = 1
    over: float = 1.0
    deadline: float = 0.0
    tree: list | None = None  # servers above leaves, as nested lists of leaves; None above a single one
    tiers: list = field(default_factory=list)  # of these, from the root down: rule, and edges to those below
    every: float = 1.0
    evaluations: int = 4
    ends: dict = field(default_factory=dict)
    watts: tuple = (0.0, 0.0)  # training, radio
    own_cloud_rule_is_busy: float = 0.0  # virtual seconds of a rule of the user's at the cloud
    leaf_link: float = 0.0  # 10^6 bytes per second that the devices of a leaf share; 0: nothing is shared
    own_duration: bool = False  # `own_seconds` says how long jobs train
    speed_file: list = field(default_factory=list)  # rows of a speed trace; empty: `fleet` is the devices'

    @property
    def nbytes(self):
        return self.start.nbytes

    def places_of(self, leaf):
        return self.places // len(self.leaves) + (leaf < self.places % len(self.leaves))


def stream(seed, purpose, *where):
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose, *where))))


def own_seconds(windows, steps, attempt, now_s, usual_s, before_s, noise):
    """How long a job trains by a duration of the user's; `before_s` is how long the newest result took."""
    slower = 0.0 if math.isnan(before_s) else 0.1 * before_s
    return (
        0.01 * windows + 0.002 * steps + 0.05 * attempt + 0.5 * usual_s + slower + noise + 0.1 * (now_s % 1)
    )


def trained(start, device, attempt, variances, steps=0):
    """A device's trained model, which follows from its id, attempt and steps alone; and its loss."""
    rng = np.random.default_rng([device, attempt, steps])
    end = (0.9 * start.astype(np.float64) + rng.standard_normal(len(start))).astype(np.float32)
    end[variances] = np.abs(end[variances]) + np.float32(0.01)
    return end, float(1 + (7 * device + 3 * attempt) % 11)


class Comings:
    """When a device is there, from its beginning on: times at which it comes or goes."""

    def __init__(self, case):
        self._case, self._walks = case, {}
        if case.availability == "diurnal":
            day = round(case.availability_arguments["day_s"] * US)
            self._offsets = stream(case.seed, 15).integers(day, size=len(case.windows)).tolist()
        if case.availability == "trace":
            self._read_file(case)

    def at(self, device, now):
        """(is there, until when), None for ever."""
        arguments = self._case.availability_arguments
        if self._case.availability == "always":
            return True, None
        if self._case.availability == "diurnal":
            day = round(arguments["day_s"] * US)
            on = max(1, round(arguments["share"] * day))
            hour = (now + self._offsets[device]) % day
            return (True, now + on - hour) if hour < on else (False, now + day - hour)
        if self._case.availability == "trace":
            return self._at_in_file(device, now)
        if device not in self._walks:
            rng = stream(self._case.seed, 15, device)
            is_there = rng.random() < arguments["on_s"] / (arguments["on_s"] + arguments["off_s"])
            self._walks[device] = [rng, is_there, self._stay(rng, is_there)]
        walk = self._walks[device]
        while walk[2] <= now:
            walk[1] = not walk[1]
            walk[2] += self._stay(walk[0], walk[1])
        return walk[1], walk[2]

    def _read_file(self, case):
        """Seconds at which devices of a file come and go, as microseconds at which it changes."""
        times, arguments = {}, case.availability_arguments
        for name, begins, ends in arguments["rows"]:
            times.setdefault(name, []).append((round(begins * US), round(ends * US)))
        period = arguments["period_s"] or max(ends for _, _, ends in arguments["rows"])
        order = range(len(times))
        if arguments["shuffle"]:
            order = stream(case.seed, 15).permutation(len(times))
        names, self._period = list(times), round(period * US)
        self._times = [times[names[order[device % len(names)]]] for device in range(len(case.windows))]

    def _at_in_file(self, device, now):
        """Whether any of a device's times covers this moment, and the next moment at which that changes."""
        period, times = self._period, self._times[device]

        def is_there(moment):
            return any(begins <= moment % period < ends for begins, ends in times)

        edges = sorted({edge % period for each in times for edge in each})
        base = now // period * period
        later = [base + turn * period + edge for turn in range(3) for edge in edges]
        answer = is_there(now)
        changes = [moment for moment in later if moment > now and is_there(moment) != answer]
        return answer, (changes[0] if changes else None)

    def _stay(self, rng, is_there):
        mean = self._case.availability_arguments["on_s" if is_there else "off_s"]
        return max(1, math.ceil(rng.exponential(mean * US)))


class Picks:
    """A leaf's numbers in [0, 1), one after another."""

    def __init__(self, seed, leaf):
        self._where, self._count = (seed, 14, leaf), 0

    def next(self):
        block, row = divmod(self._count, 256)
        self._count += 1
        return float(stream(*self._where, block).random(256)[row])


def staleness_weight(kind, tau, a, b):
    if kind == "constant":
        return 1.0
    if kind == "polynomial":
        return (1 + tau) ** -a
    if kind == "hinge":
        return 1.0 if tau <= b else 1 / (a * (tau - b) + 1)
    return 0.0 if tau >= 2 * b else 0.5 * (1 + math.cos(math.pi * tau / (2 * b)))


class Model:
    """A server's model and its rule, from the papers' formulas."""

    def __init__(self, case, rule, arguments, children, busy=0.0):
        self.w, self.version = case.start.copy(), 0
        self._rule, self._given, self._children, self._busy = rule, arguments, children, busy
        self._variances, self._seen, self._buffer, self._last = case.variances, [], [], {}
        self._m, self._v = 0.0, None  # of the server's optimiser

    def busy_us(self):
        """How long the next arrival will occupy it."""
        if self._rule != "fedrevive":
            return round(self._busy * US)
        given = self._given
        learns = given.get("distil", True) and self.version > given.get("warmup", 100)
        full = len(self._buffer) + 1 >= given.get("buffer", 1)
        return round(given.get("server_s", 0.0) * US) if learns and full else 0

    def take(self, child, tau, start, end, weight, part=1.0):
        """Take in an arrival, of a part of its steps; whether that made a version."""
        given, rule, w = self._given, self._rule, self.w.astype(np.float64)
        delta = end.astype(np.float64) - start.astype(np.float64)
        self._seen.append(end)
        share = staleness_weight(
            given.get("staleness", "polynomial"), tau, given.get("a", 0.5), given.get("b", 4.0)
        )
        share *= part
        size, lr = given.get("buffer", 1 if rule == "fedrevive" else 10), given.get("lr", 1.0)
        if rule == "fedasync":
            alpha = given.get("alpha", 0.6) * share
            return self._made((1 - alpha) * w + alpha * end.astype(np.float64))
        entry = {
            "fedavg": (delta, weight * part), "fedbuff": (share, delta), "ca2fl": (child, delta),
            "fedfa": end.astype(np.float64), "fedrevive": (tau, delta),
        }[rule]  # fmt: skip
        self._buffer.append(entry)
        if rule == "fedavg" or len(self._buffer) < size:
            return False
        if rule == "fedfa":
            new = sum(self._buffer) / size
            self._buffer.pop(0)
            self._seen = []  # a mean of models is in their range
            return self._made(new)
        arrivals, self._buffer = self._buffer, []
        if rule == "fedbuff":
            return self._made(w + self._step(lr, sum(share * delta for share, delta in arrivals) / size))
        if rule == "ca2fl":
            mean = sum(self._last.values()) / self._children if self._last else 0.0
            step = mean + sum(delta - self._last.get(who, 0.0) for who, delta in arrivals) / size
            for who, delta in arrivals:
                self._last[who] = delta.astype(np.float32).astype(np.float64)
            return self._made(w + lr * step)
        kept = [1.0] * len(arrivals)
        if self.version >= given.get("freeze", 50):
            kept = [staleness_weight("cosine", tau, 0.5, given.get("s_max", 75.0)) for tau, _ in arrivals]
        step = sum(share * delta for share, (_, delta) in zip(kept, arrivals, strict=True))
        return self._made(w + given.get("lr", 0.1) / size * step)

    def _step(self, lr, mean):
        """The mean of a buffer, or what momentum or Adam make of it (without correction of bias)."""
        kind, beta = self._given.get("optimizer", "sgd"), self._given.get("beta", 0.9)
        if kind == "sgd":
            return lr * mean
        if kind == "momentum":
            self._m = beta * self._m + mean
            return lr * self._m
        beta2, epsilon = self._given.get("beta2", 0.99), self._given.get("epsilon", 0.001)
        self._m = beta * self._m + (1 - beta) * mean
        before = np.full(len(mean), epsilon**2) if self._v is None else self._v
        self._v = beta2 * before + (1 - beta2) * mean**2
        return lr * self._m / (np.sqrt(self._v) + epsilon)

    def end_round(self):
        """Combine the arrivals of a round; whether there were any."""
        if not self._buffer:
            return False
        total = sum(weight for _, weight in self._buffer)
        step = sum(weight / total * delta for delta, weight in self._buffer)
        self._buffer = []
        return self._made(self.w.astype(np.float64) + self._given.get("lr", 1.0) * step)

    def _made(self, new):
        at = self._variances
        if self._seen and len(at):
            everything = np.array([*(end[at] for end in self._seen), self.w[at]])
            new[at] = np.clip(new[at], everything.min(0), everything.max(0))
        self.w, self.version, self._seen = new.astype(np.float32), self.version + 1, []
        return True
