"""Regions in separate processes, at the cloud: leaf rounds run by a region on its own.

A process running all leaf servers below a region can run the region, too (`fedge.edge.region`). It then gets
one order for all leaf rounds in a round of its parent. A plain region with several rounds takes the means
itself, and returns one model for all its leaves. A region with one round of several leaf rounds returns its
leaves' models, because the parent's mean is taken over them and rounded only once. Their float64 sum would
not do: another order of summation changes the last bit, which decides the rounding if a mean lies halfway
between two float32 numbers. This is not rare, because weights are whole numbers of windows.

In all other cases the cloud's process orders each leaf round from the leaf servers and takes the mean: if the
region has one round of one leaf round; if servers of its tier or below group, have a rule or offer a choice;
if SCAFFOLD corrects leaves towards the region; and in rounds in which other models are trained or further
information is requested.

Models have the same bits either way. A region reports on all its leaf rounds at once, after the last.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.cloud.region import Region, all_regions
from fedge.config.config import Config
from fedge.edge.packets import orders
from fedge.exchange.round_context import LEAF
from fedge.leaf.leaf import Leaf
from fedge.leaf.server import Server
from fedge.link.frames import Packet
from fedge.rounds import lines
from fedge.rounds.measurements.requests import Requests
from fedge.rounds.transport import Transport
from fedge.states.averaging import State


@dataclass
class RegionSpan:
    """Leaf rounds run by a region on its own.

    Attributes:
        region: the region.
        first, last: first and last leaf round, counted over the run.
        answer: accepted answer of its process; None without one.
    """

    region: Region
    first: int
    last: int
    answer: Packet | None = None

    @property
    def leaves(self) -> list[Leaf]:
        """Leaves below, in order."""
        return self.region.leaves

    @property
    def linked_leaf(self) -> int:
        """Leaf whose link reaches the process."""
        return self.leaves[0].index

    @property
    def rounds(self) -> int:
        """Number of leaf rounds."""
        return self.last - self.first + 1

    @property
    def clients(self) -> list[int]:
        """Training clients below."""
        return [client for leaf in self.leaves for client in leaf.clients]

    def order(
        self, versions: Mapping[int, int], saved_versions: Sequence[Mapping[int, int]]
    ) -> tuple[dict[str, Any], dict[str, State]]:
        """Facts and states of the order for all leaf rounds of the span.

        Args:
            versions: leaf → version of its clients' control variates.
            saved_versions: the versions named by each checkpoint, which are kept.
        """
        states: dict[str, State] = {orders.MODEL: self.region.model}
        leaves = []
        for leaf in self.leaves:
            leaf_states, facts = leaf.round_states()
            states |= orders.region_states(leaf_states, leaf.index)
            needed = sorted({checkpoint[leaf.index] for checkpoint in saved_versions})
            leaves.append([leaf.index, facts, versions[leaf.index], needed])
        path = list(self.region.path)
        return {"path": path, "first": self.first, "last": self.last, "leaves": leaves}, states

    def record_leaf_round(self, leaf_round: int, transport: Transport) -> int:
        """Add the report on a leaf round to the record; returns the number of accepted replies.

        Without an accepted answer, the leaves keep their models.
        """
        book, counted = transport.book, 0
        if self.answer is None:
            for leaf in self.leaves:
                book.note_kept_model(leaf.index)
            return 0
        for index, count, _, record in self.answer.facts["rounds"][leaf_round - self.first]:
            for client, failure in orders.failures_of(record).items():
                transport.note_failure(client, failure)
            orders.add_to_book(book, index, record)
            counted += int(count)
        return counted

    def move(self, keep: Callable[[State], State]) -> dict[int, int]:
        """Update the region and its leaves from the answer of its process; returns versions by leaf.

        Args:
            keep: stores large states in files or in memory.
        """
        assert self.answer is not None
        states, versions = self.answer.states, {}
        for leaf, (index, version, leaf_facts) in zip(self.leaves, self.answer.facts["leaves"], strict=True):
            leaf_states = orders.leaf_states(states, index)
            leaf.put_round_states(orders.with_own_control(leaf_states), leaf_facts)
            if orders.MODEL in leaf_states:
                leaf.models.trained(LEAF, leaf_states[orders.MODEL])
            versions[index] = int(version)
        if self.region.brings_leaves:
            self.region.keep_states(keep)
        else:
            self.region.take_combined(states[orders.MODEL], keep)
        return versions


class RegionsAway:
    """Regions of a run, and which of them run leaf rounds on their own."""

    def __init__(
        self,
        config: Config,
        regions: Sequence[Region],
        own_layers: Collection[str],
        is_one_process: Callable[[Sequence[int]], bool],
    ) -> None:
        """Store the regions.

        Args:
            config: configuration of the run.
            regions: regions, lowest tier first.
            own_layers: leaves' personal entries.
            is_one_process: whether the leaves of these numbers are in one process able to run a region.
        """
        self._hierarchy = config.hierarchy
        suitable = [] if own_layers else [region for region in regions if _is_plain(region, config)]
        self._candidates = sorted(suitable, key=lambda region: (len(region.path), region.path))  # upper first
        self._is_one_process = is_one_process
        self._spans: list[RegionSpan] = []

    def begin(self, leaf_round: int, requests: Requests) -> list[RegionSpan]:
        """Spans starting with a leaf round; finished spans are dropped.

        Args:
            leaf_round: number of the leaf round, counted over the run.
            requests: requests to leaves in it.
        """
        self._spans = [span for span in self._spans if span.last >= leaf_round]
        started = []
        for region in self._candidates:
            period = self._hierarchy.leaf_rounds_of(len(region.path) - 1)
            is_taken = any(self.span_of(leaf) is not None for leaf in region.leaves)
            if is_taken or (leaf_round - 1) % period or not self._can_work_alone(region, requests):
                continue
            started.append(RegionSpan(region, leaf_round, leaf_round + period - 1))
            self._spans.append(started[-1])
        return started

    def _can_work_alone(self, region: Region, requests: Requests) -> bool:
        """Whether only leaves' models are requested from a region, and it has its own process."""
        leaves = region.leaves
        has_requests = requests.dispersion or any(
            leaf.index in requests.alone or requests.updates_of(leaf.index) is not None for leaf in leaves
        )
        return (
            not has_requests
            and not lines.has_extra_lines(leaves)
            and all(_are_equal(leaf.model, region.model) for leaf in leaves)
            and self._is_one_process([leaf.index for leaf in leaves])
        )

    @property
    def spans(self) -> Sequence[RegionSpan]:
        """Spans in progress in the current leaf round."""
        return self._spans

    def span_of(self, leaf: Leaf) -> RegionSpan | None:
        """The span in which a leaf trains; None if its leaf rounds are ordered one by one."""
        return next((span for span in self._spans if leaf in span.leaves), None)

    def has_combined(self, region: Region) -> bool:
        """Whether a region's model comes from its own process, or from the process of a region above."""
        return any(
            span.region.path == region.path[: len(span.region.path)]
            for span in self._spans
            if not span.region.brings_leaves
        )


def _is_plain(region: Region, config: Config) -> bool:
    """Whether a region only takes means, and has several leaf rounds per round of its parent."""
    meeting_tiers = config.meeting_tiers & set(range(len(region.path), config.hierarchy.tiers - 1))
    servers: list[Server] = [*region.leaves, *all_regions([region])]
    has_sending = any(server.sending is not None for server in servers)
    has_extra_state = any(
        leaf.drift is not None or leaf.algorithm is not None or leaf.turns is not None
        for leaf in region.leaves
    )
    has_several_rounds = config.hierarchy.leaf_rounds > 1 if region.brings_leaves else region.rounds > 1
    return has_several_rounds and not meeting_tiers and not has_sending and not has_extra_state


def _are_equal(model: State, other: State) -> bool:
    """Whether two models are the same object, or have equal numbers, as after a resume."""
    return model is other or all(np.array_equal(array, other[name]) for name, array in model.items())
