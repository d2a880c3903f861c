"""Runs in which several clients lie in their first answers at once, each by its own seed.

A run may begin without nine of its twelve clients (`guard.start-clients`), so that a client whose lie is
refused stays out and the run goes on. Lies are grouped by what became of each alone, in process. The run of a
group on another engine is looked at beside the same run in process (same status, clients that stay out or are
left out of statistics, bits of all others), and a group that nobody goes by beside a run in which those
clients fail, or have odd statistics, too. A lie that ends its run nevertheless has one of its own.

Flower's messages hold no tables, and no number beyond its range: a ClientApp that is to send one crashes.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import lying_client
from flwr.app import ConfigRecord, Error, Message
from lies import first_answer
from lying_runs import (
    GONE,
    LEFT_OUT,
    carry_out_all,
    ended,
    first_plan,
    greet_all,
    heard_of,
    honest_record,
    look_at_finite,
    look_at_first,
    look_at_others,
    look_at_refused,
    look_at_words,
)
from possible import first_fault

from fedge.config.flat import from_run_config, to_run_config
from fedge.data.own_windows import WindowsReport
from fedge.engine.inprocess import InProcessGrid

NODES, LIARS = 12, (1, 2, 3, 5, 6, 7, 9, 10, 11)
SIZE = len(LIARS)
_MOST_ODD = (NODES - 1) // 3  # false statistics that a pool of so many bears
_MOST_UNLIKE = 5  # other windows than those of most, in a run of twelve
ENDED, OUT, UNLIKE, ODD = "ended the run", "stayed out", "stayed out as unlike", "left out"
UNHEARD, COUNTED, CRASHED = "nothing", "counted", "cannot be sent"
ABSENT = {"name": "absent", "what": "group", "seeds": {}, "absent": [1], "liars": [1]}
_AWAY = re.compile(r"\d+ of \d+ clients are missing \(partition ([\d, ]+)\)")
_FAILED = re.compile(r"(?<=a client failed at its first call).*")
_UNLIKE = re.compile(r"partition \d+ (has other|has no|names (no )?windows)")


@dataclass(frozen=True)
class Group:
    """Lies of one run, in the order of LIARS.

    Attributes:
        seeds: of the lies.
        odd: those of them that are left out of the statistics.
        out: those of them whose clients stay out.
        is_counted: the others' bits depend on the lies.
    """

    seeds: tuple
    odd: frozenset = frozenset()
    out: frozenset = frozenset()
    is_counted: bool = False

    @property
    def plan(self):
        """The plan of the run; all LIARS fail at their work."""
        seeds = {str(client): seed for client, seed in self.of_clients().items()}
        name = f"group-{self.seeds[0]}-{len(self.seeds)}"
        return {"name": name, "what": "group", "seeds": seeds, "liars": list(LIARS)}

    def of_clients(self):
        """Client → seed of its lie."""
        return dict(zip(LIARS, self.seeds, strict=False))

    def clients_of(self, seeds):
        return [client for client, seed in self.of_clients().items() if seed in seeds]

    def without(self):
        """The plan of a run in which the same clients stay out or are left out, and nobody else lies."""
        odd, absent = self.clients_of(self.odd), self.clients_of(self.out)
        name = f"without-{'-'.join(map(str, odd))}-absent-{'-'.join(map(str, absent))}"
        plan = {"name": name, "what": "group", "seeds": {}, "odd": odd, "absent": absent}
        return {**plan, "sums": ["mean", 1e300], "liars": list(LIARS)}

    def only(self, seeds):
        """The group of some of its lies; the first one's teller is the same."""
        return Group(tuple(seeds), self.odd & set(seeds), self.out & set(seeds), self.is_counted)


class OverAWire:
    """The lying ClientApp, of which a reply that Flower cannot send is a crash."""

    def __call__(self, message, context):
        reply = lying_client.app(message, context)
        if reply.has_error() or is_sendable(reply.content.get("config")):
            return reply
        return Message(Error(8, "RuntimeError: its ClientApp crashed"), reply_to=message)


def is_sendable(record):
    """Whether a ConfigRecord has values that Flower can send."""
    try:
        return record is None or bool(record.deflate())
    except (TypeError, ValueError):
        return False


class Keyed(InProcessGrid):
    """Nodes in this process that are as those of a deployment: each has the key of its partition."""

    nodes_come_back = True

    @staticmethod
    def partition_of_key(node_id):
        return node_id - 1


class Fates:
    """Fates of lies in process, alone and in groups.

    Attributes:
        alone: seed → (kind of the lie, what became of it), with one liar.
        groups: for runs on other engines.
    """

    def __init__(self, nodes, config, dealt):
        """Runs of so many clients with a configuration, whose windows lie in a folder."""
        self._nodes, self._config, self.dealt = nodes, config, dealt
        self.runs = config["runs-dir"]
        self.alone, self.groups = {}, []

    def carry_out(self, plans):
        with Keyed(OverAWire(), self._nodes, self._config, 2) as grid:
            carry_out_all(lambda: grid, "inprocess", self._config, plans)

    def judge(self, seeds):
        """Tell each lie alone."""
        self.carry_out([GONE, LEFT_OUT, ABSENT, *map(first_plan, seeds)])
        self.alone = {seed: self._fate(seed) for seed in seeds}

    def _fate(self, seed):
        """(kind of a lie, what became of it) in the run in which one client told it."""
        found = ended(self.runs, first_plan(seed)["name"])
        if not away(found):
            what, became = look_at_first(self.runs, self.dealt, seed, self._nodes)
            return what, ENDED if became == "refused" else became
        what, spoil = first_answer(seed)
        assert away(found) == {1}, seed
        look_at_words(found, f"seed {seed}: {what}")
        look_at_others(found, ended(self.runs, ABSENT["name"]), f"seed {seed}: {what}")
        if _UNLIKE.search(found.shown):
            return what, UNLIKE
        if "its ClientApp crashed" in found.shown:
            return what, CRASHED
        honest = honest_record(self.dealt, clients=self._nodes)
        lie = spoil(dict(honest))
        is_own = lie.get("partition_id") == 1 and lie.get("num_partitions") == self._nodes
        assert not is_own or first_fault(honest, lie) is not None, f"seed {seed}: {what} could be honest"
        return what, OUT

    def seeds_of(self, *fates):
        return [seed for seed, (_, became) in self.alone.items() if became in fates]

    def group(self):
        """Make groups that do in process what their lies did alone."""
        out, unlike, odd, unheard, counted = map(self.seeds_of, (OUT, UNLIKE, ODD, UNHEARD, COUNTED))
        crashed = self.seeds_of(CRASHED)
        while unlike:
            first, unlike = unlike[:_MOST_UNLIKE], unlike[_MOST_UNLIKE:]
            self._add(Group((*self._taken(unheard, first), *first), out=frozenset(first)))
        while odd or unheard:
            first, odd = odd[:_MOST_ODD], odd[_MOST_ODD:]
            self._add(Group((*self._taken(unheard, first), *first), frozenset(first)))
        for alike in (out, crashed):  # a crash is noticed after a minute, so they are in runs of their own
            for at in range(0, len(alike), SIZE):
                first = alike[at : at + SIZE]
                self._add(Group(tuple(first), out=frozenset(first)))
        while counted:
            self._add(Group(self._taken(counted, []), is_counted=True))

    def _taken(self, seeds, others):
        """Take seeds from a list for a run with some others.

        The first liar's place is for a lie that would be another one if somebody else told it.
        """
        is_free = {seed: self._is_anybodys(seed) for seed in seeds}
        bound = [seed for seed in seeds if not is_free[seed]][:1]
        free = [seed for seed in seeds if is_free[seed]][: SIZE - len(bound) - len(others)]
        for seed in (*bound, *free):
            seeds.remove(seed)
        return (*bound, *free)

    def _is_anybodys(self, seed):
        """Tell whether all LIARS can tell a lie to the same effect."""
        effects = set()
        for client in LIARS:
            honest = honest_record(self.dealt, client, self._nodes)
            lie = first_answer(seed)[1](dict(honest))
            if first_fault(honest, lie) or lie["partition_id"] != client or lie.get("told") is None:
                return False
            effects.add(heard_of(honest, lie))
        return len(effects) == 1

    def _add(self, group):
        """Add a group, or parts of it where together its lies are no longer what they are alone."""
        self.carry_out([group.plan])
        changed = self._changed(group) if len(group.seeds) > 1 else []
        if not changed:
            self.look_at_twin(group)
            self.groups.append(group)
            return
        same = [seed for seed in group.seeds if seed not in changed]
        parts = [same, *([seed] for seed in changed)] if same else [group.seeds[::2], group.seeds[1::2]]
        for seeds in parts:
            self._add(group.only(seeds))

    def _changed(self, group):
        """Lies of a group that are not what they are alone; all where the run has ended."""
        found = ended(self.runs, group.plan["name"])
        if found.status == "failed":
            return list(group.seeds)
        if group.is_counted:
            return [seed for client, seed in group.of_clients().items() if client in away(found)]
        differ = left_out(found) ^ set(group.clients_of(group.odd))
        differ |= away(found) ^ set(group.clients_of(group.out))
        return [seed for client, seed in group.of_clients().items() if client in differ]

    def look_at_twin(self, group):
        """Look at the run of a group in process."""
        found, where = ended(self.runs, group.plan["name"]), str(group)
        look_at_words(found, where)
        assert found.status != "failed", where
        if group.is_counted:
            look_at_finite(found, where, LIARS)
        else:
            wanted = group.without()
            assert (left_out(found), away(found)) == (set(wanted["odd"]), set(wanted["absent"])), where
            if not (Path(self.runs) / "shown" / f"{wanted['name']}.json").is_file():
                self.carry_out([wanted])
            beside = ended(self.runs, wanted["name"])
            assert (left_out(beside), away(beside)) == (left_out(found), away(found)), where
            look_at_others(found, beside, where, LIARS)
        for client, seed in group.of_clients().items():
            honest = honest_record(self.dealt, client, self._nodes)
            fault = first_fault(honest, first_answer(seed)[1](dict(honest)))
            assert fault is None or seed in group.out, (where, seed)

    def look_at(self, runs, group):
        """Look at the run of a group on another engine: it is what it is in process."""
        found, twin = (ended(each, group.plan["name"]) for each in (runs, self.runs))
        where = str(group)
        look_at_words(found, where)
        assert (found.status, found.reason) == (twin.status, twin.reason), where
        assert found.lies >= len(group.seeds), where  # a node that was restarted is asked again
        assert (left_out(found), away(found)) == (left_out(twin), away(twin)), where
        look_at_others(found, twin, where, LIARS)

    def counts(self):
        """(kind of lie, what became of it) → how many."""
        return dict(sorted(Counter(self.alone.values()).items()))


def left_out(found):
    """Clients whose statistics a run has left out."""
    return set(map(int, found.manifest["data"].get("left_out", {})))


def away(found):
    """Clients without which a run has begun."""
    said = _AWAY.search(found.shown)
    return set(map(int, said[1].split(","))) if said else set()


def look_at_refusals(runs, seeds):
    """Look at runs of one lie each that is to be refused."""
    for seed in seeds:
        found = ended(runs, first_plan(seed)["name"])
        look_at_words(found, f"seed {seed}")
        assert found.status == "failed", f"seed {seed}: {found.status}"
        look_at_refused(found, f"seed {seed}")
        assert found.lies >= 1, f"seed {seed}"


# --- first answers alone: no work follows ----------------------------------------------------------------


def greetings(seeds, folder, dealt, config, nodes=NODES):
    """Plans of exchanges in which LIARS tell lies by seeds, SIZE in each, those that crash apart.

    What the server makes of each in process lies in a folder afterwards.

    Args:
        seeds: of the lies; the liars take turns.
        folder: of what is found in process.
        dealt: folder of the clients' windows.
        config: options, flat.
        nodes: clients.
    """
    told = list(zip(seeds, LIARS * (len(seeds) // SIZE + 1), strict=False))
    sendable = {pair: can_be_told(*pair, dealt, nodes) for pair in told}
    plans = [
        {"name": f"greeting-{some[0][0]}", "what": "group", "liars": list(LIARS),
         "seeds": {str(client): seed for seed, client in some}}
        for kind in (True, False)
        for some in in_turns([pair for pair in told if sendable[pair] == kind])
    ]  # fmt: skip
    with Keyed(OverAWire(), nodes, to_run_config(from_run_config(config)), 2) as grid:
        greet_all(lambda: grid, nodes, nodes - SIZE, folder, plans)
    return plans


def can_be_told(seed, client, dealt, nodes):
    """Whether Flower can send a client's lie."""
    record = ConfigRecord()
    record.__dict__["_data"] = first_answer(seed)[1](dict(honest_record(dealt, client, nodes)))
    return is_sendable(record)


def in_turns(pairs):
    """(seed, client) in groups without a client twice."""
    groups, of_client = [], Counter()
    for seed, client in pairs:
        at = of_client[client]
        of_client[client] += 1
        if at == len(groups):
            groups.append([])
        groups[at].append((seed, client))
    return groups


def look_at_greetings(folder, twins, plans, dealt, nodes=NODES):
    """Look at what was found on another engine: all honest clients, what was found in process, nothing raw.

    Returns (kind of lie, "out" or "in") → how many.
    """
    fates = Counter()
    for plan in plans:
        where = str(plan["seeds"])
        found, twin = (
            json.loads((Path(each) / f"{plan['name']}.json").read_text()) for each in (folder, twins)
        )
        assert found.pop("lies") >= len(plan["seeds"]), where
        twin.pop("lies")
        for each in (found, twin):  # a crash is told in each engine's words
            each["out"] = [_FAILED.sub("", why) for why in each.get("out", ())]
        assert found == twin, (where, found, twin)
        assert "error" not in found, (where, found["error"])
        assert all(line.isprintable() and len(line) < 1000 for line in found["out"]), (where, found["out"])
        for client in range(nodes):
            honest = honest_record(dealt, client, nodes)
            seed = plan["seeds"].get(str(client))
            lie = honest if seed is None else first_answer(seed)[1](dict(honest))
            is_out = client in found["away"]
            assert not is_out or seed is not None, (where, client)
            assert is_out == (str(client) not in found["told"]), (where, client)
            assert is_out or first_fault(honest, lie) is None, (where, client)
            if seed is None:
                told = WindowsReport.of_text(honest["told"])
                assert WindowsReport.of_text(found["told"][str(client)]) == told, (where, client)
            else:
                fates[first_answer(seed)[0], "out" if is_out else "in"] += 1
    return dict(sorted(fates.items()))
