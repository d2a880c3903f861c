"""Any case of the virtual clock, and what Fedge makes of it, where nobody trains for real."""

import csv
import json
import math
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from independent_rules import Case, own_seconds, stream, trained

from fedge.config.flat import from_run_config
from fedge.config.registers.parts import AVAILABILITY, CLOUD_RULES, SELECTIONS, SERVER_RULES
from fedge.devices.clients.results import Population
from fedge.devices.population.fleet import Fleet
from fedge.devices.population.trace import trace
from fedge.devices.procedure import Procedure
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import version_of
from fedge.devices.tiers.parent import cloud_arguments
from fedge.devices.tiers.servers_above import servers_above
from fedge.devices.world import Listeners, World
from fedge.exchange.train import TrainReply
from fedge.timing.laps import LapClock

ENDS = ("versions", "updates", "megabytes", "joules")


class Trained:
    """Results as the second simulator has them; notes which jobs were handed over."""

    def __init__(self, case):
        self.case, self.asked, self.used = case, [], []

    def begin(self, job):
        assert job.fate == "trains"
        self.asked.append(job.number)

    def forget(self, job):
        assert job.number in self.asked or job.number not in self.used

    def __contains__(self, job):
        return False

    def result(self, job):
        self.used.append(job.number)
        end, loss = trained(job.start.vector, job.device, job.attempt, self.case.variances, job.steps)
        whole = len(end) - len(self.case.variances)
        state = {"w": end[:whole], "v": end[whole:]}
        return TrainReply(state, 1, 1, loss, 0.0, self.case.nbytes)


class Nobody:
    """Clients that hold no test windows."""

    def evaluate(self, served, number):
        return {}, {}

    def validate(self, served, number):
        return {}, {}


class Told:
    """Reports of a run."""

    def __init__(self, case):
        self.case, self.ended, self.curve, self.procedure = case, [], [], None

    def on_job(self, row):
        job = row.job
        self.ended.append((
            job.number, job.device, job.server, job.attempt, job.period, job.staleness_from, job.began_us,
            job.end_us, row.outcome, row.staleness, job.steps,
        ))  # fmt: skip

    def on_evaluation(self, result, row, laps):
        of = self.procedure
        self.curve.append({
            "now": of.clock.now_us, "models": [server.version.vector for server in all_of(of)],
            "top": of.tops[0].version.vector, "version": of.tops[0].number,
            "versions": [server.number for server in all_of(of)], "ended": len(self.ended),
            "moved": dict(of.ledger.moved), "at work": row.at_work, "joules": row.joules or 0.0,
        })  # fmt: skip
        return False


def all_of(procedure):
    """The leaves, and the servers above them."""
    return [*procedure.servers, *(procedure.above.servers if procedure.above is not None else [])]


def config_of_case(case):
    """The configuration of a case."""
    above = case.tiers[0] if case.tiers else {"rule": "fedbuff", "arguments": {}, "every": 1, "delay": 0.0,
                                              "megabytes": 1.0, "link": 0.0}  # fmt: skip
    is_deep = len(case.tiers) > 1
    deep = {
        "hierarchy.tree": tree_text(case, case.tree), "asynchrony.tiers": json.dumps(
            {str(tier): in_words(of) for tier, of in enumerate(case.tiers) if tier}
        ),
    }  # fmt: skip
    return from_run_config({
        **(deep if is_deep else {"hierarchy.num-servers": len(case.leaves)}),
        "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "report": False,
        "clients": max(len(case.windows), len(case.leaves)),
        "train.local-epochs": 1, "num-server-rounds": case.evaluations, "devices.dropout": case.dropout,
        "devices.partial-work": case.partial, "train.batch-size": case.batch,
        "asynchrony.rule": case.rule, "asynchrony.rule-args": json.dumps(case.arguments),
        "asynchrony.concurrency": case.places, "asynchrony.evaluate-every-s": case.every,
        "asynchrony.max-staleness": case.max_staleness, "asynchrony.timeout-s": case.timeout,
        "asynchrony.refill": case.refill, "asynchrony.over-selection": case.over,
        "asynchrony.deadline-s": case.deadline, "asynchrony.leaf-link-megabytes-s": case.leaf_link,
        **{f"asynchrony.cloud-{word}": json.dumps(value) if word == "rule-args" else value
           for word, value in in_words(above).items()},
        **{f"asynchrony.end-{name}": most for name, most in case.ends.items()},
    })  # fmt: skip


def in_words(of):
    """Options of a tier of servers over servers."""
    return {
        "rule": of["rule"], "rule-args": of["arguments"], "every": of["every"], "delay-s": of["delay"],
        "megabytes-s": of["megabytes"], "link-megabytes-s": of["link"],
    }  # fmt: skip


def tree_text(case, below):
    """The tree as hierarchy.tree has it: the clients of every leaf, in brackets."""
    if below is None or isinstance(below, int):
        return "" if below is None else str(len(case.leaves[below]))
    return f"({','.join(tree_text(case, each) for each in below)})"


def procedure_of(case):
    """Fedge's own run of a case, before its first event, and what it will tell."""
    config, count = config_of_case(case), len(case.windows)
    leaf_of = {device: leaf for leaf, devices in enumerate(case.leaves) for device in devices}
    who = Population(leaf_of, dict(enumerate(case.windows)), frozenset(), len(case.leaves))
    watts = {"train_watts": np.full(count, case.watts[0]), "radio_watts": np.full(count, case.watts[1])}
    fleet = replace(_fleet_of_case(case), **watts)
    whole = len(case.start) - len(case.variances)
    start = version_of(
        {"w": case.start[:whole], "v": case.start[whole:]}, {"v"} if len(case.variances) else ()
    )
    told, ahead = Told(case), Trained(case)
    presence = _presence_of_case(case)
    world = World(
        config, case.seed, who, fleet, presence, ahead, Nobody(), frozenset(range(count)), LapClock(), told,
        SELECTIONS.load(case.selection), case.selection_arguments,
        own_duration if case.own_duration else None,
    )  # fmt: skip
    world = World(**{**vars(world), "hooks": Listeners(told.on_evaluation, told.on_job)})
    rule = SERVER_RULES.load(case.rule)
    servers = [DeviceServer(start, rule, case.arguments, len(devices)) for devices in case.leaves]
    told.procedure = Procedure(world, servers, _above(case, config, start, servers))
    return told.procedure, told, ahead


def own_duration(work):
    """The duration of a user's that cases with `own_duration` have."""
    before_s = work.history.seconds[work.device]
    return own_seconds(
        work.windows, work.steps, work.attempt, work.now_s, work.usual_s, before_s, work.rng.random()
    )


def _fleet_of_case(case):
    """The devices of a case, read from a file where it has one."""
    if case.speed_file:
        with tempfile.TemporaryDirectory() as folder:
            path = _written(Path(folder) / "speeds.csv", SPEEDS, case.speed_file)
            owner = np.zeros(len(case.windows), np.int64)
            return trace(owner, stream(case.seed, 12), path, case.fleet["sigma"])
    columns = {name: np.array(values) for name, values in case.fleet.items() if isinstance(values, list)}
    return Fleet(**columns, noise=case.fleet["noise"], sigma=case.fleet["sigma"])


def _presence_of_case(case):
    """When the devices of a case are there, read from a file where it has one."""
    given, known = dict(case.availability_arguments), AVAILABILITY.load(case.availability)
    if "rows" not in given:
        return known(len(case.windows), case.seed, **given)
    with tempfile.TemporaryDirectory() as folder:
        path = _written(Path(folder) / "there.csv", ("device", "from_s", "until_s"), given.pop("rows"))
        return known(len(case.windows), case.seed, path=path, **given)


def _written(path, header, rows):
    """The path of a CSV file, once written."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def _above(case, config, start, servers):
    """The servers above several leaves; the cloud's rule may be one of a user's that takes time."""

    def make(place):
        fedges = CLOUD_RULES.load(place.options.cloud_rule)
        rule = fedges
        if case.own_cloud_rule_is_busy and not place.path:

            def rule(model, memory, arrival, **arguments):
                return fedges(model, memory, arrival, **arguments)

            rule.seconds_of = lambda memory, arguments: case.own_cloud_rule_is_busy
        arguments = cloud_arguments(rule, place.options.arguments("cloud_rule"))
        return DeviceServer(start, rule, arguments, len(place.leaves))

    weights = [float(sum(case.windows[device] for device in devices)) for devices in case.leaves]
    return servers_above(config, servers, weights, make)


def _arguments(draw, rule, most):
    """Any arguments of a rule; its buffer holds at most so many."""
    one_of = st.sampled_from
    found = {}
    if rule in ("fedbuff", "ca2fl", "fedfa"):
        found["buffer"] = draw(st.integers(1, most))
    if rule in ("fedbuff", "ca2fl"):
        found["lr"] = draw(one_of([0.3, 1.0, 1.7]))
    if rule == "fedavg":
        found["lr"] = draw(one_of([0.5, 1.0, 1.3]))
    if rule in ("fedasync", "fedbuff"):
        kinds = ["constant", "polynomial", "hinge", "cosine"]
        found |= {
            "staleness": draw(one_of(kinds)),
            "a": draw(one_of([0.5, 10.0])),
            "b": draw(one_of([2.0, 4.0])),
        }
    if rule == "fedbuff" and (optimizer := draw(one_of(["sgd", "sgd", "momentum", "adam"]))) != "sgd":
        found |= {"optimizer": optimizer, "beta": draw(one_of([0.0, 0.5, 0.9]))}
    if rule == "fedasync":
        found["alpha"] = draw(one_of([0.3, 0.9, 1.0]))
    if rule == "fedrevive":  # of no network is anything known here: nothing is distilled, but time passes
        found |= {"buffer": draw(st.integers(1, most)), "lr": 0.5, "s_max": draw(one_of([1.5, 5.0]))}
        found |= {"freeze": draw(one_of([0, 3])), "warmup": draw(one_of([0, 4]))}
        found |= {"server_s": draw(one_of([0.0, 0.07, 0.4])), "distil": draw(st.booleans())}
    return found


def _tree(draw, rules, leaves, depth):
    """Any tree above so many leaves, or none above one; and its tiers' rules and edges."""
    one_of = st.sampled_from
    depth = draw(one_of([2, 2, 3, 4])) if depth is None else depth
    if leaves == 1 and depth == 2:
        return None, []
    tree, tiers, fewest = list(range(leaves)), [], [leaves]
    for _ in range(depth - 2):
        cuts = sorted(draw(st.sets(st.integers(1, max(1, len(tree) - 1)), max_size=len(tree) - 1)))
        tree = [tree[first:last] for first, last in pairwise([0, *cuts, len(tree)])]
        fewest = [len(tree), min(map(len, tree)), *fewest[1:]]
    for most in fewest:
        rule = draw(one_of(rules))
        tiers.append({
            "rule": rule, "arguments": _arguments(draw, rule, most), "every": draw(st.integers(1, 3)),
            "delay": draw(one_of([0.0, 0.3, 1.0])), "megabytes": draw(one_of([10.0, 0.001])),
            "link": draw(one_of([0.0, 0.0, 0.00005])),
        })  # fmt: skip
    return tree, tiers


def _fleet(draw, rng, count):
    """Any speeds; equal ones, too."""
    noise = draw(
        st.sampled_from(["log-normal", "log-normal", "exponential", "half-normal", "normal", "equal"])
    )
    nothing = [0.0] * count
    if noise == "equal":
        return {
            "per_window_s": nothing, "per_job_s": [1.0] * count, "down": [math.inf] * count,
            "up": [math.inf] * count, "down_s": nothing, "up_s": nothing, "noise": "log-normal", "sigma": 0.0,
        }  # fmt: skip
    spread = {"per_window_s": (0.02, 0.8), "per_job_s": (0.1, 0.5), "down": (1e4, 1.0), "up": (5e3, 1.0),
              "down_s": (0.05, 0.0), "up_s": (0.01, 0.3)}  # fmt: skip
    found = {name: (middle * np.exp(sigma * rng.standard_normal(count))).tolist()
             for name, (middle, sigma) in spread.items()}  # fmt: skip
    if noise == "normal":
        found |= {
            name: rng.uniform(0, most, count).tolist() for name, most in (("sd", 0.8), ("delay_sd", 0.1))
        }
    return {
        **found,
        "noise": noise,
        "sigma": draw(st.sampled_from([0.0, 0.2])) if noise == "log-normal" else 0.0,
    }


SPEEDS = ("seconds_per_window", "seconds_per_job", "down_bytes_s", "up_bytes_s", "down_s", "up_s")


def _from_file(draw, rng, seed, count):
    """Rows of a speed trace, and what devices come of them after its shuffle."""
    rows = rng.uniform(0.01, 0.5, size=(draw(st.integers(1, 9)), len(SPEEDS))) * [0.1, 1, 1e5, 1e5, 1, 1]
    order = stream(seed, 12).permutation(len(rows))
    columns = np.array([rows[order[device % len(rows)]] for device in range(count)]).T
    names = ("per_window_s", "per_job_s", "down", "up", "down_s", "up_s")
    fleet = {name: column.tolist() for name, column in zip(names, columns, strict=True)}
    return rows.tolist(), {**fleet, "noise": "log-normal", "sigma": draw(st.sampled_from([0.0, 0.2]))}


def _attendance(draw):
    """Rows of an availability trace: times may touch, overlap, last until its end, or be its whole."""
    name, begins, lasts = st.sampled_from("abc"), st.integers(0, 40), st.integers(1, 30)
    drawn = draw(st.lists(st.tuples(name, begins, lasts), min_size=1, max_size=9))
    rows = [(device, begin / 4, (begin + last) / 4) for device, begin, last in drawn]
    end = max(until for _, _, until in rows)
    return {"rows": rows, "period_s": draw(st.sampled_from([0.0, end + 2.5])), "shuffle": draw(st.booleans())}


RULES = ("fedavg", "fedasync", "fedbuff", "ca2fl", "fedfa", "fedrevive")
WHO = ("uniform", "balanced", "without-reuse", "oort")
WHEN = ("always", "diurnal", "markov", "trace")
WITH_PARTIAL_WORK = ("fedavg", "fedasync", "fedbuff")


@st.composite
def cases(draw, rules=RULES, who=("uniform", *WHO), when=WHEN, is_late=None, way=None, depth=None):
    """Any case: rule, selection, timeout, refill, availability, limit, tiers of servers.

    Args:
        draw: hypothesis's.
        rules: to be drawn from, at leaves and at the cloud.
        who: selections.
        when: availabilities.
        is_late: whether jobs are given up after some time, by timeout or deadline; None: any.
        way: "alone", "partial" work, or "shared" link of a leaf; None: any.
        depth: tiers of servers; None: any of 1 to 4.
    """
    one_of = st.sampled_from
    limits = {None: [0.0, 0.0, 0.9, 2.5], True: [0.9, 2.5], False: [0.0]}[is_late]
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    ends = np.cumsum([0, *sizes]).tolist()
    leaves = [list(range(first, end)) for first, end in pairwise(ends)]
    count = ends[-1]
    tree, tiers = _tree(draw, rules, len(sizes), depth)
    seed = draw(st.integers(0, 9999))
    rng = np.random.default_rng(seed)
    rule = draw(one_of(rules))
    variances = draw(one_of([0, 0, 2]))
    start = rng.standard_normal(9).astype(np.float32)
    start[9 - variances :] = np.abs(start[9 - variances :])
    availability = draw(one_of(when))
    availability_arguments = {
        "always": {},
        "diurnal": {"day_s": draw(one_of([3.0, 20.0])), "share": draw(one_of([0.02, 0.3, 0.8]))},
        "markov": {"on_s": draw(one_of([1.0, 5.0])), "off_s": draw(one_of([0.5, 20.0]))},
        "trace": _attendance(draw),
    }[availability]  # fmt: skip
    selection = draw(one_of(who))
    selection_arguments = {
        "without-reuse": {"times": draw(st.integers(1, 9))}, "oort": {"least": draw(one_of([0.2, 0.6]))}
    }.get(selection, {})  # fmt: skip
    in_rounds = rule == "fedavg"
    end = draw(one_of([None, None, None, *ENDS]))
    most = {"versions": 9, "updates": 37, "megabytes": 0.004, "joules": 40.0}
    speed_file, fleet = [], _fleet(draw, rng, count)
    if draw(one_of([False, False, True])):
        speed_file, fleet = _from_file(draw, rng, seed, count)
    partial = rule in WITH_PARTIAL_WORK and draw(st.booleans() if way is None else st.just(way == "partial"))
    links = {None: [0.0, 0.0, 0.01, 0.0001, 0.00003], "shared": [0.01, 0.0001, 0.00003]}.get(way, [0.0])
    own_busy = draw(one_of([0.0, 0.0, 0.35])) if tiers and tiers[0]["rule"] != "fedrevive" else 0.0
    return Case(
        leaves, rng.integers(1, 60, size=count).tolist(), seed, rule, _arguments(draw, rule, 8),
        draw(st.integers(len(sizes), min(sizes) * len(sizes))), fleet, start,
        np.arange(9 - variances, 9), availability, availability_arguments, selection, selection_arguments,
        dropout=draw(one_of([0.0, 0.1, 0.6])),
        partial=partial,
        batch=draw(one_of([1, 5, 32])), max_staleness=0 if in_rounds else draw(one_of([0, 0, 2])),
        timeout=draw(one_of(limits)),
        refill=1 if in_rounds else draw(one_of([1, 1, 2, 30])),
        over=draw(one_of([1.0, 1.3, 2.0])) if in_rounds else 1.0,
        deadline=draw(one_of([0.0, 0.5, 2.0] if is_late is None else limits)) if in_rounds else 0.0,
        tree=tree, tiers=tiers, every=draw(one_of([1.0, 3.0])),
        evaluations=draw(one_of([5, 12])), ends={} if end is None else {end: most[end]},
        watts=draw(one_of([(0.0, 0.0), (2.0, 0.5)])), own_cloud_rule_is_busy=own_busy,
        leaf_link=0.0 if partial else draw(one_of(links)),
        own_duration=draw(one_of([False, False, True])), speed_file=speed_file,
    )  # fmt: skip
