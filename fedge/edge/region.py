"""A region in one process with all leaf servers below it: runs the region's rounds there.

The region acts as the cloud for its leaf servers: it orders a leaf round from all of them at once, collects
their answers, and takes the mean at the end of each of its rounds, as `fedge.cloud.region` does in the
cloud's process. So models have the same bits. With one round of several leaf rounds, the leaves' models are
returned instead of their mean (`fedge.edge.remote_regions`). Leaf servers keep versions of their state on
disk by leaf round; the version at an order's start is kept until the next order, so a repeated order starts
from the same state.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from fedge.cloud.region import Region, all_regions, servers_over
from fedge.config.config import Config
from fedge.edge.order_checks import check_order, check_region
from fedge.edge.order_execution import LeafExecutor
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
        """Execute all leaf rounds of an order; answers with the region's or its leaves' models.

        Raises:
            OrderRefused: the order is invalid.
        """
        facts, states = packet.facts, packet.states
        check_region(packet, self._config.hierarchy, list(self._leaf_servers))
        position = facts["run"], facts["global_round"]
        starts = dict(self._restore_leaf(row, states, (*position, facts["first"])) for row in facts["leaves"])
        leaves, versions = list(starts), {leaf.index: version for leaf, (version, _) in starts.items()}
        (server,) = servers_over(self._config, leaves, tier=len(facts["path"]))
        region, regions = cast(Region, server), all_regions([server])
        reports: list[list[tuple[list[Any], float]]] = []
        notes = MergedNotes(note)
        with ThreadPoolExecutor(len(leaves), "region-leaf") as pool:
            for leaf_round in range(int(facts["first"]), int(facts["last"]) + 1):
                notes.begin(leaf_round)

                def train(leaf: Leaf, leaf_round: int = leaf_round) -> tuple[Packet, float]:
                    start, needed = starts[leaf]
                    leaf_states, leaf_facts = leaf.round_states()
                    leaf_record = leaf_facts, versions[leaf.index], [*needed, start]
                    order = _make_order(
                        leaf_record, {orders.MODEL: leaf.model, **leaf_states}, (*position, leaf_round)
                    )
                    answer = self._leaf_servers[leaf.index].carry_out(order, notes.receiver(leaf.index))
                    return answer, time.monotonic()

                answers = list(pool.map(train, leaves))
                for leaf, (answer, _) in zip(leaves, answers, strict=True):
                    self._update_leaf(leaf, answer)
                    versions[leaf.index] = int(answer.facts["version"])
                reports.append([
                    ([leaf.index, *(answer.facts[name] for name in ("counted", "moved", "book"))], ended)
                    for leaf, (answer, ended) in zip(leaves, answers, strict=True)
                ])  # fmt: skip
                if not region.brings_leaves:
                    self._combine(regions, leaf_round, int(facts["global_round"]))
        return _make_answer(region, leaves, versions, reports)

    def _restore_leaf(
        self, row: Sequence[Any], states: Mapping[str, State], position: tuple[Any, Any, Any]
    ) -> tuple[Leaf, tuple[int, list[int]]]:
        """A leaf in the state given by an order, its starting version, and the versions to keep.

        Args:
            row: row of the order: the leaf's number, its facts, both.
            states: states in the order.
            position: run, global round, first leaf round.

        Raises:
            OrderRefused: the leaf server would refuse it.
        """
        index, leaf_facts, version, needed = row
        site, model = self._leaf_servers[index].site, states[orders.MODEL]
        leaf_states = orders.with_own_control(orders.leaf_states(states, index))
        order = _make_order((leaf_facts, version, needed), {orders.MODEL: model, **leaf_states}, position)
        check_order(order, site.make_leaf(site.model))
        leaf = site.make_leaf(site.facilities.shared.keep(model))
        leaf.put_round_states(leaf_states, leaf_facts)
        return leaf, (version, list(needed))

    def _update_leaf(self, leaf: Leaf, answer: Packet) -> None:
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


def _make_order(
    leaf_record: tuple[Mapping[str, Any], int, Sequence[int]],
    states: Mapping[str, State],
    position: tuple[Any, Any, Any],
) -> Packet:
    """Order of a leaf round to a leaf server, as the cloud would give it.

    Args:
        leaf_record: the leaf's facts, the version of its clients' control variates, the versions to keep.
        states: its model, and other states.
        position: run, global round, leaf round.
    """
    leaf_facts, version, needed = leaf_record
    run, global_round, leaf_round = position
    facts = {
        "leaf_round": leaf_round, "line": LEAF, "fork": False, "without": [], "leaf": leaf_facts,
        "version": version, "needed": sorted(set(needed)), "updates": False, "dispersion": False,
        "alone": False, "run": run, "global_round": global_round,
    }  # fmt: skip
    return Packet(orders.TRAIN, facts, states)


def _make_answer(
    region: Region,
    leaves: Sequence[Leaf],
    versions: Mapping[int, int],
    reports: Sequence[Sequence[tuple[list[Any], float]]],
) -> Packet:
    """The answer to an order; times of calls are relative to now."""
    now = time.monotonic()
    rounds = [
        [[*row[:-1], orders.delayed_book(row[-1], now - ended)] for row, ended in round_reports]
        for round_reports in reports
    ]
    moved = {row[0] for round_reports in reports for row, _ in round_reports if row[2]}
    states, leaf_rows = {} if region.brings_leaves else {orders.MODEL: region.model}, []
    for leaf in leaves:
        leaf_states, facts = leaf.round_states()
        if region.brings_leaves and leaf.index in moved:
            leaf_states = {**leaf_states, orders.MODEL: leaf.model}
        states |= orders.region_states(leaf_states, leaf.index)
        leaf_rows.append([leaf.index, versions[leaf.index], facts])
    return Packet(orders.DONE, {"rounds": rounds, "leaves": leaf_rows}, states)
