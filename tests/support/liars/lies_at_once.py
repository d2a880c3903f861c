"""Runs in which several clients lie in their first answers at once, each by its own seed.

Lies are grouped by what became of each alone, in process. A group's run on another engine is looked at beside
the same run in process (same status, clients left out, bits of all others), and a group that nobody goes by
beside a run without those clients, too. A lie that is refused ends its run, so it has one of its own.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import lying_client
from lies import first_answer
from lying_runs import (
    GONE,
    LEFT_OUT,
    carry_out_all,
    ended,
    first_plan,
    heard_of,
    honest_record,
    look_at_finite,
    look_at_first,
    look_at_others,
    look_at_refused,
    look_at_words,
)
from possible import first_fault

from fedge.engine.inprocess import InProcessGrid

NODES, LIARS = 12, (1, 2, 3, 5, 6, 7, 9, 10, 11)
SIZE = len(LIARS)
_MOST_ODD = (NODES - 1) // 3  # false statistics that a pool of so many bears
REFUSED, ODD, UNHEARD, COUNTED = "refused", "left out", "nothing", "counted"


@dataclass(frozen=True)
class Group:
    """Lies of one run, in the order of LIARS.

    Attributes:
        seeds: of the lies.
        odd: those of them that are left out of the statistics.
        is_counted: the others' bits depend on the lies.
    """

    seeds: tuple
    odd: frozenset = frozenset()
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

    def without(self):
        """The plan of a run in which the same clients are left out, and nobody else lies."""
        odd = [client for client, seed in self.of_clients().items() if seed in self.odd]
        plan = {"name": f"without-{'-'.join(map(str, odd))}", "what": "group", "seeds": {}, "odd": odd}
        return {**plan, "sums": ["mean", 1e300], "liars": list(LIARS)}

    def halves(self):
        """Two groups of half as many lies; the first one's teller is the same."""
        for seeds in (self.seeds[::2], self.seeds[1::2]):
            yield Group(seeds, self.odd & set(seeds), self.is_counted)


class Fates:
    """Fates of lies in process, alone and in groups.

    Attributes:
        alone: seed → (kind of the lie, what became of it), with one liar.
        groups: for runs on other engines; a single lie that was refused makes a group, too.
    """

    def __init__(self, nodes, config, dealt):
        """Runs of so many clients with a configuration, whose windows lie in a folder."""
        self._nodes, self._config, self.dealt = nodes, config, dealt
        self.runs = config["runs-dir"]
        self.alone, self.groups = {}, []

    def carry_out(self, plans):
        with InProcessGrid(lying_client.app, self._nodes, self._config, 2) as grid:
            carry_out_all(lambda: grid, "inprocess", self._config, plans)

    def judge(self, seeds):
        """Tell each lie alone."""
        self.carry_out([GONE, LEFT_OUT, *map(first_plan, seeds)])
        self.alone = {seed: look_at_first(self.runs, self.dealt, seed) for seed in seeds}

    def seeds_of(self, fate):
        return [seed for seed, (_, became) in self.alone.items() if became == fate]

    def group(self):
        """Make groups that do in process what their lies did alone."""
        odd, unheard, counted = map(self.seeds_of, (ODD, UNHEARD, COUNTED))
        while odd or unheard:
            first, odd = odd[:_MOST_ODD], odd[_MOST_ODD:]
            self._add(Group(self._taken(unheard, first), frozenset(first)))
        while counted:
            self._add(Group(self._taken(counted, []), is_counted=True))

    def _taken(self, seeds, odd):
        """Take seeds from a list for a run, behind those of odd statistics.

        The first liar's place is for a lie that would be another one if somebody else told it.
        """
        is_free = {seed: self._is_anybodys(seed) for seed in seeds}
        bound = [seed for seed in seeds if not is_free[seed]][:1]
        free = [seed for seed in seeds if is_free[seed]][: SIZE - len(bound) - len(odd)]
        for seed in (*bound, *free):
            seeds.remove(seed)
        return (*bound, *odd, *free)

    def _is_anybodys(self, seed):
        """Tell whether all LIARS can tell a lie to the same effect."""
        effects = set()
        for client in LIARS:
            honest = honest_record(self.dealt, client, self._nodes)
            lie = first_answer(seed)[1](dict(honest))
            if first_fault(honest, lie) or lie["partition_id"] != client:
                return False
            effects.add(heard_of(honest, lie))
        return len(effects) == 1

    def _add(self, group):
        """Add a group, or its halves where together its lies are no longer what they are alone."""
        self.carry_out([group.plan])
        if len(group.seeds) == 1 or self._is_as_alone(group):
            self.look_at_twin(group)
            self.groups.append(group)
        else:
            for half in group.halves():
                self._add(half)

    def _is_as_alone(self, group):
        found = ended(self.runs, group.plan["name"])
        if found.status == "failed":
            return False
        return group.is_counted or left_out(found) == set(map(str, group.without()["odd"]))

    def look_at_twin(self, group):
        """Look at the run of a group in process."""
        found, where = ended(self.runs, group.plan["name"]), str(group)
        look_at_words(found, where)
        assert found.status != "failed", where
        if group.is_counted:
            look_at_finite(found, where, LIARS)
        else:
            wanted = group.without()
            assert left_out(found) == set(map(str, wanted["odd"])), where
            if not (Path(self.runs) / "shown" / f"{wanted['name']}.json").is_file():
                self.carry_out([wanted])
            beside = ended(self.runs, wanted["name"])
            assert left_out(beside) == left_out(found), where
            look_at_others(found, beside, where, LIARS)
        for client, seed in group.of_clients().items():
            honest = honest_record(self.dealt, client, self._nodes)
            assert first_fault(honest, first_answer(seed)[1](dict(honest))) is None, (where, seed)

    def look_at(self, runs, group):
        """Look at the run of a group on another engine: it is what it is in process."""
        found, twin = (ended(each, group.plan["name"]) for each in (runs, self.runs))
        where = str(group)
        look_at_words(found, where)
        assert (found.status, found.reason) == (twin.status, twin.reason), where
        assert found.lies >= len(group.seeds), where  # a node that was restarted is asked again
        assert left_out(found) == left_out(twin), where
        look_at_others(found, twin, where, LIARS)

    def counts(self):
        """(kind of lie, what became of it) → how many."""
        return dict(sorted(Counter(self.alone.values()).items()))


def left_out(found):
    """Clients, as text, whose statistics a run has left out."""
    return set(found.manifest["data"].get("left_out", {}))


def look_at_refusals(runs, seeds):
    """Look at runs of one lie each that is to be refused."""
    for seed in seeds:
        found = ended(runs, first_plan(seed)["name"])
        look_at_words(found, f"seed {seed}")
        assert found.status == "failed", f"seed {seed}: {found.status}"
        look_at_refused(found, f"seed {seed}")
        assert found.lies >= 1, f"seed {seed}"
