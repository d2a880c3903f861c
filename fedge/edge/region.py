"""A region in one process with all leaf servers below it: runs the region's rounds there.

The region acts as the cloud for its leaf servers: it orders a leaf round from all of them at once, collects
their answers, and takes the mean at the end of each of its rounds, as `fedge.cloud.region` does in the
cloud's process. So models have the same bits. With one round of several leaf rounds, the leaves' models are
returned instead of their mean (`fedge.edge.away`). Leaf servers keep versions of their state on disk by leaf
round; the version at an order's start is kept until the next order, so that a repeated order starts from the
same state.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from fedge.cloud.region import Region, all_regions, servers_over
from fedge.config.config import Config
from fedge.edge.asked import check_order, check_region
from fedge.edge.at_work import LeafExecutor
from fedge.edge.packets import orders
from fedge.edge.progress import MergedNotes
from fedge.exchange.round_context import LEAF
from fedge.leaf.leaf import Leaf
from fedge.link.dial import Note
from fedge.link.frames import Packet
from fedge.states.averaging import State


class RegionExecutor:
    """A region in one run, over the leaf servers of its process."""

    def __init__(self, config: Config, leaves: Mapping[int, LeafExecutor]) -> None:
        """Start over leaf servers by number, each in the run."""
        self._config, self._leaf_servers = config, leaves

    def carry_out(self, packet: Packet, note: Note) -> Packet:
        """Execute all leaf rounds of an order; the answer has the region's model or its leaves' models,
        and the leaf servers' reports.

        Raises:
            OrderRefused: the order is invalid.
        """
        facts, states = packet.facts, packet.states
        check_region(packet, self._config.hierarchy, list(self._leaf_servers))
        where = facts["run"], facts["global_round"]
        began = dict(self._starting_leaf(row, states, (*where, facts["first"])) for row in facts["leaves"])
        leaves, versions = list(began), {leaf.index: version for leaf, (version, _) in began.items()}
        (server,) = servers_over(self._config, leaves, tier=len(facts["path"]))
        region, regions = cast(Region, server), all_regions([server])
        told: list[list[tuple[list[Any], float]]] = []
        notes = MergedNotes(note)
        with ThreadPoolExecutor(len(leaves), "region-leaf") as pool:
            for leaf_round in range(int(facts["first"]), int(facts["last"]) + 1):
                notes.begin(leaf_round)

                def train(leaf: Leaf, leaf_round: int = leaf_round) -> tuple[Packet, float]:
                    start, needed = began[leaf]
                    own, kept = leaf.round_states()
                    about = kept, versions[leaf.index], [*needed, start]
                    order = _order(about, {orders.MODEL: leaf.model, **own}, (*where, leaf_round))
                    answer = self._leaf_servers[leaf.index].carry_out(order, notes.of(leaf.index))
                    return answer, time.monotonic()

                answers = list(pool.map(train, leaves))
                for leaf, (answer, _) in zip(leaves, answers, strict=True):
                    self._take(leaf, answer)
                    versions[leaf.index] = int(answer.facts["version"])
                told.append([
                    ([leaf.index, *(answer.facts[name] for name in ("counted", "moved", "book"))], at)
                    for leaf, (answer, at) in zip(leaves, answers, strict=True)
                ])  # fmt: skip
                if not region.brings_leaves:
                    self._combine(regions, leaf_round, int(facts["global_round"]))
        return _answer(region, leaves, versions, told)

    def _starting_leaf(
        self, row: Sequence[Any], states: Mapping[str, State], where: tuple[Any, Any, Any]
    ) -> tuple[Leaf, tuple[int, list[int]]]:
        """A leaf in the state that an order gives, its starting version, and the versions to keep.

        Args:
            row: row of the order: the leaf's number, its facts, both.
            states: states in the order.
            where: run, global round, first leaf round.

        Raises:
            OrderRefused: the leaf server would refuse it.
        """
        index, kept, version, needed = row
        site, model = self._leaf_servers[index].site, states[orders.MODEL]
        own = orders.with_own_control(orders.of_leaf(states, index))
        order = _order((kept, version, needed), {orders.MODEL: model, **own}, where)
        check_order(order, site.make_leaf(site.model))
        leaf = site.make_leaf(site.facilities.shared.keep(model))
        leaf.put_round_states(own, kept)
        return leaf, (version, list(needed))

    def _take(self, leaf: Leaf, answer: Packet) -> None:
        """Update a leaf from its server's answer, as the cloud does."""
        leaf.put_round_states(orders.with_own_control(answer.states), answer.facts["leaf"])
        if answer.facts["moved"]:
            leaf.models.trained(LEAF, answer.states[orders.MODEL])
        leaf.keep_states(self._leaf_servers[leaf.index].site.facilities.shared.keep)

    def _combine(self, regions: Sequence[Region], leaf_round: int, global_round: int) -> None:
        """Let regions at the end of a round take the mean, lowest tier first."""
        keep = next(iter(self._leaf_servers.values())).site.facilities.shared.keep
        for region in regions:
            if leaf_round % self._config.hierarchy.leaf_rounds_of(len(region.path)) == 0:
                region.combine(global_round, keep)


def _order(
    about: tuple[Mapping[str, Any], int, Sequence[int]],
    states: Mapping[str, State],
    where: tuple[Any, Any, Any],
) -> Packet:
    """Order of a leaf round to a leaf server, as the cloud would give it.

    Args:
        about: the leaf's facts, the version of its clients' control variates, the versions to keep.
        states: its model, and other states.
        where: run, global round, leaf round.
    """
    kept, version, needed = about
    run, global_round, leaf_round = where
    facts = {
        "leaf_round": leaf_round, "line": LEAF, "fork": False, "without": [], "leaf": kept,
        "version": version, "needed": sorted(set(needed)), "updates": False, "dispersion": False,
        "alone": False, "run": run, "global_round": global_round,
    }  # fmt: skip
    return Packet(orders.TRAIN, facts, states)


def _answer(
    region: Region,
    leaves: Sequence[Leaf],
    versions: Mapping[int, int],
    told: Sequence[Sequence[tuple[list[Any], float]]],
) -> Packet:
    """The answer to an order; times of calls are relative to now."""
    now = time.monotonic()
    rounds = [
        [[*row[:-1], orders.delayed_book(row[-1], now - at)] for row, at in of_round] for of_round in told
    ]
    moved = {row[0] for of_round in told for row, _ in of_round if row[2]}
    states, kept = {} if region.brings_leaves else {orders.MODEL: region.model}, []
    for leaf in leaves:
        own, facts = leaf.round_states()
        if region.brings_leaves and leaf.index in moved:
            own = {**own, orders.MODEL: leaf.model}
        states |= orders.named_for(own, leaf.index)
        kept.append([leaf.index, versions[leaf.index], facts])
    return Packet(orders.DONE, {"rounds": rounds, "leaves": kept}, states)
