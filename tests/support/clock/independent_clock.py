"""A second simulator of the virtual clock, written from docs/devices.md and the papers alone.

It shares no code with `fedge.devices`, only the random numbers, whose streams are derived anew. It is slow
and plain: events lie in a list that is searched, devices come and go even while nobody asks for them, and
what becomes of the jobs of a round is found out as it happens.
"""

import math
from collections import Counter
from fractions import Fraction
from statistics import NormalDist

from independent_links import Pipe
from independent_rules import US, Comings, Model, Picks, own_seconds, stream, trained
from independent_tiers import Tiers

RANK = {name: rank for rank, name in enumerate((
    "change", "sent", "send-bytes", "send-between", "served-above", "served", "arrive", "reached-upper",
    "reached-lower", "round-end", "answer", "evaluate",
))}  # fmt: skip


class Simulation(Tiers):
    """One case, event by event."""

    def __init__(self, case):
        self.case, self.now = case, 0
        leaves = range(len(case.leaves))
        self.models = [Model(case, case.rule, case.arguments, len(devices)) for devices in case.leaves]
        self.there, self.away = [[] for _ in leaves], [set() for _ in leaves]
        self.lines, self.is_busy = [[] for _ in leaves], [False for _ in leaves]
        self.rounds, self.at_work = [None for _ in leaves], [0 for _ in leaves]
        self.picks, self.given = [Picks(case.seed, leaf) for leaf in leaves], [0 for _ in leaves]
        self.comings = Comings(case)
        self.attempts, self.given_in, self.losses, self.took = Counter(), {}, {}, {}
        self.begun = self.evaluated = self.updates = 0
        self.ended, self.curve, self.staleness, self.moved = [], [], Counter(), Counter()
        self.joules, self.is_ending, self.has_ended = 0.0, False, False
        self.uploads = Counter()
        self.todo = []
        self.pipes = [Pipe(case.leaf_link) for _ in (*leaves, *leaves)] if case.leaf_link else []
        self.grow()
        for leaf, devices in enumerate(case.leaves):
            for device in devices:
                is_there, until = self.comings.at(device, 0)
                (self.there[leaf].append if is_there else self.away[leaf].add)(device)
                if until is not None:
                    self.at(until, "change", device, leaf)
        self.at(round(case.every * US), "evaluate", 0, 1)

    def at(self, time, kind, subject, number=0, about=None):
        self.todo.append((time, RANK[kind], subject, number, kind, about))

    def run(self):
        while self.evaluated < self.case.evaluations and not self.has_ended:
            coming = min(self.todo, key=lambda event: event[:4]) if self.todo else None
            if coming is None or coming[0] > self.now:
                for leaf in range(len(self.case.leaves)):  # nothing else happens at this moment
                    self.fill(leaf)
                    self.look_at_the_limits()
                    if self.is_ending:
                        break
                coming = min(self.todo, key=lambda event: event[:4])
            self.todo.remove(coming)
            self.now, _, subject, number, kind, about = coming
            getattr(self, kind.replace("-", "_"))(subject, number, about)
            self.look_at_the_limits()
        return self

    def look_at_the_limits(self):
        case = self.case
        found = {
            "versions": self.top().version, "updates": self.updates,
            "megabytes": sum(self.moved.values()) / 1e6, "joules": self.joules,
        }  # fmt: skip
        if not self.is_ending and any(found[name] >= most for name, most in case.ends.items()):
            self.is_ending = True
            self.at(self.now, "evaluate", 0, self.evaluated + 1)

    # --- who works ---

    def change(self, device, leaf, _):
        is_there, until = self.comings.at(device, self.now)
        self.at(until, "change", device, leaf)
        if is_there and device in self.away[leaf]:
            self.away[leaf].remove(device)
            self.there[leaf].append(device)
        elif not is_there and device in self.there[leaf]:
            self.remove(leaf, device)
            self.away[leaf].add(device)

    def remove(self, leaf, device):
        """The last one takes the place of one that goes."""
        there = self.there[leaf]
        place, last = there.index(device), there.pop()
        if last != device:
            there[place] = last

    def fill(self, leaf):
        """Give work, if there is reason to."""
        case, places = self.case, self.case.places_of(leaf)
        if case.rule == "fedavg":
            if self.rounds[leaf] is None:
                self.begin_round(leaf)
        elif places - self.at_work[leaf] >= min(case.refill, places):
            while self.at_work[leaf] < places and (job := self.plan(leaf)) is not None:
                self.begin(job)

    def plan(self, leaf):
        device = self.select(leaf) if self.there[leaf] else None
        if device is None:
            return None
        case = self.case
        self.remove(leaf, device)
        self.attempts[device] += 1
        self.given_in[device] = 1 + self.given[leaf] // case.places_of(leaf)
        self.given[leaf] += 1
        self.begun += 1
        block, row = divmod(self.attempts[device], 16)
        rng = stream(case.seed, 13, device, block)
        normal, (uniform, dropout, where) = rng.standard_normal(16)[row], rng.random((3, 16))[:, row]
        fleet = case.fleet
        training, delay = self.training(device, normal, uniform)
        comes = fleet["down_s"][device] + case.nbytes / fleet["down"][device]
        trains = comes + training
        takes = trains + delay + case.nbytes / fleet["up"][device]
        whole, way = max(1, round(takes * US)), None
        if case.leaf_link:
            down, up = self.pipes[2 * leaf], self.pipes[2 * leaf + 1]
            way = {
                "down": round(fleet["down_s"][device] * US), "train": round(training * US),
                "up": round(delay * US), "leg": "coming", "cut": None, "lost": "",
            }  # fmt: skip
            whole = way["down"] + way["train"] + way["up"]
            whole += down.alone(case.nbytes, fleet["down"][device]) + up.alone(
                case.nbytes, fleet["up"][device]
            )
        ways = [(whole, "trains")]
        if dropout < case.dropout:
            ways = [(max(1, round(whole * where)), "dropped")]
        _, until = self.comings.at(device, self.now)
        if until is not None and self.now + ways[-1][0] > until:
            ways.append((until - self.now, "away"))
        if case.timeout and case.rule != "fedavg" and ways[-1][0] > round(case.timeout * US):
            ways.append((round(case.timeout * US), "late"))
        busy, fate = ways[-1]
        steps, there_at, trained_at = 0, round(comes * US), round(trains * US)
        all_steps = -(-case.windows[device] // case.batch)
        if case.partial:
            most = [until - self.now] if until is not None else []
            limit_s = case.deadline if case.rule == "fedavg" else case.timeout
            most += [max(1, round(limit_s * US))] if limit_s else []
            in_time = min(most, default=math.inf)
            if busy > in_time or fate in ("away", "late"):
                # the most steps after which the way back ends in time, found one by one
                ends = {
                    n: math.ceil(Fraction(n * (trained_at - there_at), all_steps))
                    for n in range(1, all_steps)
                }
                fit = [n for n in ends if there_at + ends[n] + whole - trained_at <= in_time]
                if fit:
                    steps, fate = fit[-1], "trains"
                    busy = there_at + ends[steps] + whole - trained_at
                    trained_at = there_at + ends[steps]
                elif fate == "trains" or fate == "dropped":
                    busy, fate = in_time, "late"
        if way is not None and fate != "trains":
            way["cut"], way["lost"] = self.now + busy, fate
        elif way is not None:
            cuts = [] if until is None else [(until, "away")]
            if case.timeout and case.rule != "fedavg":
                cuts.append((self.now + round(case.timeout * US), "late"))
            if cuts:
                way["cut"], way["lost"] = min(cuts, key=lambda cut: cut[0])
        return {
            "way": way,
            "number": self.begun, "device": device, "leaf": leaf, "attempt": self.attempts[device],
            "period": self.evaluated + 1, "from": self.models[leaf].version, "began": self.now,
            "end": self.now + busy, "fate": fate, "w": self.models[leaf].w,
            "training": (there_at, trained_at) if way is None else (2**60, 2**60),
            "steps": steps, "part": steps / all_steps if steps else 1.0,
        }  # fmt: skip

    def training(self, device, normal, uniform):
        """Seconds of training of a device's newest job, and of delay before its result is sent."""
        case, fleet = self.case, self.case.fleet
        noiseless = fleet["per_job_s"][device] + fleet["per_window_s"][device] * case.windows[device]
        seconds, delay = noiseless, fleet["up_s"][device]
        if fleet["noise"] == "normal":
            seconds = max(0.0, noiseless + fleet["sd"][device] * normal)
            delay = max(0.0, delay + fleet["delay_sd"][device] * NormalDist().inv_cdf(uniform))
        elif fleet["noise"] == "exponential":
            seconds = noiseless * -math.log1p(-uniform)
        elif fleet["noise"] == "half-normal":
            seconds = noiseless * abs(normal)
        elif fleet["sigma"]:
            seconds = noiseless * math.exp(fleet["sigma"] * normal)
        if case.own_duration:
            attempt, windows = self.attempts[device], case.windows[device]
            noise = stream(case.seed, 18, device, attempt).random()
            seconds = own_seconds(
                windows, math.ceil(windows / case.batch), attempt, self.now / US, seconds,
                self.took.get(device, math.nan), noise,
            )  # fmt: skip
        return seconds, delay

    def select(self, leaf):
        """The next device for work, of those there."""
        case, there, draw = self.case, self.there[leaf], self.picks[leaf].next
        if case.selection == "uniform":
            return there[int(draw() * len(there))]
        if case.selection == "balanced":
            fewest = min(self.attempts[device] for device in there)
            fit = [device for device in there if self.attempts[device] == fewest]
            return fit[int(draw() * len(fit))]
        if case.selection == "without-reuse":
            fit = [
                device for device in there if self.attempts[device] < case.selection_arguments.get("times", 1)
            ]
            return fit[int(draw() * len(fit))] if fit else None
        return self.select_by_utility(leaf)

    def select_by_utility(self, leaf):
        """Oort (Lai et al. 2021), one place at a time."""
        case, there, draw = self.case, self.there[leaf], self.picks[leaf].next
        given = {"exploration": 0.9, "decay": 0.98, "least": 0.2, "alpha": 2.0, "cut_off": 0.95, "clip": 0.95,
                 "preferred": 0.3, **case.selection_arguments}  # fmt: skip
        places = case.places_of(leaf)
        turn = 1 + self.given[leaf] // places
        epsilon = max(given["least"], given["exploration"] * given["decay"] ** turn)
        known = [device for device in there if device in self.losses]
        new = [device for device in there if device not in self.losses]
        if not known or (new and draw() < epsilon):
            return self.drawn(new, [case.windows[device] for device in new], draw)
        utility = {device: case.windows[device] * self.losses[device] for device in known}
        ordered = sorted(utility.values())
        clip = ordered[min(int(len(ordered) * given["clip"]), len(ordered) - 1)]
        low = 0.999 * ordered[0]
        durations = sorted(self.took.values())
        preferred = durations[min(int(len(durations) * given["preferred"]), len(durations) - 1)]
        scores = []
        for device in known:
            score = (min(utility[device], clip) - low) / max(ordered[-1] - low, 1e-4)
            score += math.sqrt(0.1 * math.log(turn) / self.given_in[device])
            if self.took[device] > preferred:
                score *= (preferred / self.took[device]) ** given["alpha"]
            scores.append(score)
        best = sorted(scores, reverse=True)
        cut = given["cut_off"] * best[min(int(places * (1 - epsilon)), len(best) - 1)]
        good = [(device, score) for device, score in zip(known, scores, strict=True) if score >= cut]
        return self.drawn([device for device, _ in good], [score for _, score in good], draw)

    @staticmethod
    def drawn(devices, weights, draw):
        total = sum(weights)
        if not total > 0:
            return devices[int(draw() * len(devices))]
        point, end = draw() * total, 0.0
        for device, weight in zip(devices, weights, strict=True):
            end += weight
            if point < end:
                return device
        raise AssertionError("a point beyond the end")

    def begin(self, job):
        self.at_work[job["leaf"]] += 1
        self.moved["down"] += self.case.nbytes
        if job["way"] is None:
            self.at(job["end"], "arrive", job["device"], job["number"], job)
            return
        self.at(self.now + job["way"]["down"], "send-bytes", job["device"], job["number"], job)
        if job["way"]["cut"] is not None:
            self.at(job["way"]["cut"], "arrive", job["device"], job["number"], job)

    # --- shared links ---

    def change_pipe(self, place, **what):
        ends = self.pipes[place].change(self.now, **what)
        if ends is not None:
            self.at(ends, "sent", place, self.pipes[place].version)

    def send_bytes(self, device, number, job):
        way, case = job["way"], self.case
        if way["leg"] == "over":
            return
        way["leg"] = "receiving" if way["leg"] == "coming" else "sending"
        direction = "down" if way["leg"] == "receiving" else "up"
        way["pipe"] = 2 * job["leaf"] + (direction == "up")
        self.way_of = {**getattr(self, "way_of", {}), number: job}
        self.change_pipe(way["pipe"], joins=(number, case.nbytes, case.fleet[direction][device]))

    def sent(self, place, version, _):
        pipe = self.pipes[place]
        if pipe.version != version:
            return
        over = pipe.over(self.now)
        self.change_pipe(place, leaves=over)
        for key in over:
            if not self.sent_between(place, key):
                self.sent_by_device(self.way_of.pop(key))

    def sent_by_device(self, job):
        way = job["way"]
        if way["leg"] == "receiving":
            way["leg"] = "training"
            there = self.now - job["began"]
            job["training"] = there, there + way["train"]
            self.at(self.now + way["train"] + way["up"], "send-bytes", job["device"], job["number"], job)
            return
        way["leg"] = "back"
        if job["fate"] == "trains":
            self.at(self.now, "arrive", job["device"], job["number"], job)

    def stop(self, job):
        """A job over shared links is over."""
        way = job["way"]
        if way["leg"] in ("receiving", "sending"):
            self.change_pipe(way["pipe"], leaves=[job["number"]])
        if way["leg"] != "back" and job["fate"] == "trains":
            job["fate"] = way["lost"]
        way["leg"], job["end"] = "over", self.now

    def end(self, job, outcome, staleness=None):
        """A job is over."""
        there, trained_at = job["training"]
        busy = job["end"] - job["began"]
        self.uploads[job["device"]] += busy >= trained_at
        in_training = max(0, min(busy, trained_at) - there)
        self.joules += (self.case.watts[0] * in_training + self.case.watts[1] * (busy - in_training)) / US
        self.ended.append((
            job["number"], job["device"], job["leaf"], job["attempt"], job["period"], job["from"],
            job["began"], job["end"], outcome, staleness, job["steps"],
        ))  # fmt: skip

    def free(self, leaf, device):
        self.at_work[leaf] -= 1
        is_there, _ = self.comings.at(device, self.now)
        (self.there[leaf].append if is_there else self.away[leaf].add)(device)

    # --- what comes back ---

    def arrive(self, device, number, job):
        leaf = job["leaf"]
        if job["way"] is not None:
            if job["way"]["leg"] == "over":
                return
            self.stop(job)
        self.free(leaf, device)
        if self.case.rule == "fedavg":
            self.arrive_in_round(leaf, job)
        elif job["fate"] != "trains":
            self.end(job, job["fate"])
        else:
            self.lines[leaf].append(job)
            self.serve(leaf)

    def serve(self, leaf):
        """First come, first served."""
        while self.lines[leaf] and not self.is_busy[leaf]:
            busy = self.models[leaf].busy_us()
            if busy:
                self.is_busy[leaf] = True
                self.at(self.now + busy, "served", leaf, self.lines[leaf][0]["number"])
                return
            self.take(self.lines[leaf].pop(0))

    def served(self, leaf, *_):
        self.is_busy[leaf] = False
        self.take(self.lines[leaf].pop(0))
        self.serve(leaf)

    def take(self, job):
        leaf, case, device = job["leaf"], self.case, job["device"]
        tau = self.models[leaf].version - job["from"]
        self.staleness[tau] += 1
        self.moved["up"] += case.nbytes
        if case.max_staleness and tau > case.max_staleness:
            self.end(job, "stale", tau)
            return
        found, loss = trained(job["w"], device, job["attempt"], case.variances, job["steps"])
        self.losses[device], self.took[device] = loss, (job["end"] - job["began"]) / US
        if self.models[leaf].take(device, tau, job["w"], found, case.windows[device], job["part"]):
            self.made(leaf)
        self.updates += 1
        self.end(job, "updates", tau)

    # --- rounds ---

    def begin_round(self, leaf):
        case, jobs = self.case, []
        while len(jobs) < case.places_of(leaf) and (job := self.plan(leaf)) is not None:
            jobs.append(job)
        if not jobs:
            return
        goal = max(1, round(case.places_of(leaf) / case.over))
        self.rounds[leaf] = {"jobs": jobs, "goal": goal, "back": 0, "open": len(jobs), "closing": False}
        for job in jobs:
            job["is_on"] = True
            self.begin(job)
        if case.deadline:
            deadline = self.now + max(1, round(case.deadline * US))
            self.at(deadline, "round-end", leaf, 10**9 + self.begun, self.rounds[leaf])

    def arrive_in_round(self, leaf, job):
        found = self.rounds[leaf]
        job["is_on"] = False
        found["open"] -= 1
        if job["fate"] != "trains":
            self.end(job, job["fate"])
        elif found["back"] < found["goal"]:
            found["back"] += 1
            self.take(job)
        else:
            self.end(job, "late")  # in the same microsecond as the last that counts
        all_back = found["open"] == 0 and not self.case.deadline
        if not found["closing"] and (found["back"] == found["goal"] or all_back):
            found["closing"] = True
            self.at(self.now, "round-end", leaf, job["number"], found)

    def round_end(self, leaf, _, found):
        if self.rounds[leaf] is not found:
            return
        is_shared = bool(self.case.leaf_link)
        jobs = sorted(found["jobs"], key=lambda job: job["device"]) if is_shared else found["jobs"]
        for job in jobs:  # those still at work are told to stop
            if job["is_on"]:
                if is_shared:
                    self.stop(job)
                job["is_on"], job["end"] = False, self.now
                self.todo = [event for event in self.todo if event[5] is not job]
                self.end(job, "late")
                self.free(leaf, job["device"])
        now_back = sorted(job["device"] for job in found["jobs"]
                          if job["end"] == self.now and job["device"] in self.there[leaf])  # fmt: skip
        kept = [device for device in self.there[leaf] if device not in now_back]
        if not is_shared:  # over shared links those that are stopped come after those that are back
            self.there[leaf] = kept + now_back  # of one moment: in the order of ids
        self.rounds[leaf] = None
        if self.models[leaf].end_round():
            self.made(leaf)

    # --- how good it is ---

    def top(self):
        return self.cloud["model"] if self.cloud else self.models[0]

    def evaluate(self, _, number, __):
        self.evaluated = number
        self.at(self.now + round(self.case.every * US), "evaluate", 0, number + 1)
        top, models = self.top(), [*self.models, *(node["model"] for node in self.inner)]
        self.curve.append({
            "now": self.now, "models": [model.w for model in models], "top": top.w,
            "version": top.version, "versions": [model.version for model in models],
            "ended": len(self.ended),
            "moved": {name: self.moved[name] for name in ("down", "up", "cloud_up", "cloud_down")},
            "at work": sum(self.at_work), "joules": self.joules,
        })  # fmt: skip
        self.has_ended = self.is_ending
