"""Validation of answers from regions that run their rounds in their own process.

Every leaf round of every leaf passes the checks of a leaf server's answer. Then the final state is checked:
the leaves' versions must agree with the leaf rounds that changed their models, states must have the leaves'
form, and the models (the region's, or those of changed leaves) must be possible after this number of steps.
"""

from collections.abc import Collection, Mapping
from typing import Any

from fedge.edge.answers import AnswerRejected, Schema, check_like
from fedge.edge.away import RegionSpan
from fedge.edge.packets import orders
from fedge.edge.packets.facts import FactError, only, refusing, rows, whole_number
from fedge.exchange.round_context import LEAF
from fedge.link.frames import Packet
from fedge.link.gate import NUMBER
from fedge.states.averaging import State

_TOLD, _KEPT = 4, 3  # values per row: of a leaf round, and of kept state


def check_region_answer(
    checks: Schema, answer: Packet, span: RegionSpan, versions: Mapping[int, int], global_round: int
) -> Packet:
    """Check an answer to a region's order, and return it; AnswerRejected unless it fits the order.

    Args:
        checks: schema of leaf servers' answers in the run.
        answer: answer of the region's process.
        span: leaf rounds that the order asked for.
        versions: leaf → version of its clients' control variates before the order.
        global_round: 1, 2, …
    """
    with refusing(AnswerRejected):
        only(answer.facts, {"rounds", "leaves", NUMBER})
        told = answer.facts["rounds"]
        if not isinstance(told, list) or len(told) != span.rounds:
            raise FactError("rounds", f"not {span.first} to {span.last}")
        now, moved, counted = dict(versions), set(), 0
        for leaf_round, of_round in enumerate(told, span.first):
            for leaf, row in zip(span.leaves, _of_each(of_round, span, _TOLD, "rounds"), strict=True):
                count, has_moved = checks.leaf_round(leaf, LEAF, *row[1:])
                counted += count
                if has_moved:
                    moved.add(leaf.index)
                    if leaf.control is not None:
                        now[leaf.index] = leaf_round
        kept = _of_each(answer.facts["leaves"], span, _KEPT, "leaves")
        for leaf, row in zip(span.leaves, kept, strict=True):
            whole_number(row[1], now[leaf.index], now[leaf.index], "version")
            has_moved = leaf.index in moved
            checks.check_kept(row[2], leaf, counted, has_moved, global_round)
            leaf.refuse_other_strategy(orders.of_leaf(answer.states, leaf.index), row[2])
        _check_states(checks, answer.states, span, moved)
    return answer


def _of_each(told: Any, span: RegionSpan, width: int, what: str) -> list[list[Any]]:
    """A row for each leaf of a region, in order."""
    found = rows(told, width, len(span.leaves), what)
    if [row[0] for row in found] != [leaf.index for leaf in span.leaves]:
        raise FactError(what, "of other leaves")
    return found


def _check_states(
    checks: Schema, states: Mapping[str, State], span: RegionSpan, moved: Collection[int]
) -> None:
    """Raise unless the region's model (or its changed leaves') and leaves' states are possible."""
    brings_leaves = span.region.brings_leaves
    left = states.keys() - (set() if brings_leaves else {orders.MODEL})
    for leaf in span.leaves:
        if brings_leaves and leaf.index in moved:
            name = f"{leaf.index}/{orders.MODEL}"
            checks.check_model(states[name], leaf, span.region.model, span.rounds)
            left -= {name}
        known, _ = leaf.round_states()
        if leaf.control is not None:
            check_like(states[f"{leaf.index}/control"], known["control"])
            left -= {f"{leaf.index}/control"}
        left -= {name for name in left if name.startswith(f"{leaf.index}/{orders.STRATEGY}")}
    if left:
        raise FactError("states", ", ".join(sorted(left)[:3]))
    if brings_leaves:
        return
    longest = max(span.leaves, key=lambda leaf: max(leaf.train_samples.values(), default=0))
    checks.check_model(states[orders.MODEL], longest, span.region.model, span.rounds)
