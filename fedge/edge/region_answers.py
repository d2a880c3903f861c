"""Validation of answers from regions running their rounds in their own process.

Every leaf round of every leaf passes the checks of a leaf server's answer. Then the final state is checked:
the leaves' versions must agree with the leaf rounds in which their models changed, states must have the
leaves' form, and the models (the region's, or those of changed leaves) must be possible after this number of
steps.
"""

from collections.abc import Collection, Mapping
from typing import Any

from fedge.edge.answers import AnswerRejected, Schema, check_like
from fedge.edge.packets import orders
from fedge.edge.packets.plain_json import FactError, only, refusing, rows, whole_number
from fedge.edge.remote_regions import RegionSpan
from fedge.exchange.round_context import LEAF
from fedge.link.frames import Packet
from fedge.link.gate import NUMBER
from fedge.states.averaging import State

_ROUND_WIDTH, _STATE_WIDTH = 4, 3  # values per row: of a leaf round, and of kept state


def check_region_answer(
    schema: Schema, answer: Packet, span: RegionSpan, versions: Mapping[int, int], global_round: int
) -> Packet:
    """A checked answer to a region's order; AnswerRejected unless it fits the order.

    Args:
        schema: schema of leaf servers' answers in the run.
        answer: answer of the region's process.
        span: leaf rounds requested by the order.
        versions: leaf → version of its clients' control variates before the order.
        global_round: 1, 2, …
    """
    with refusing(AnswerRejected):
        only(answer.facts, {"rounds", "leaves", NUMBER})
        rounds = answer.facts["rounds"]
        if not isinstance(rounds, list) or len(rounds) != span.rounds:
            raise FactError("rounds", f"not {span.first} to {span.last}")
        new_versions, moved, counted = dict(versions), set(), 0
        for leaf_round, round_rows in enumerate(rounds, span.first):
            for leaf, row in zip(
                span.leaves, _rows_by_leaf(round_rows, span, _ROUND_WIDTH, "rounds"), strict=True
            ):
                count, has_moved = schema.leaf_round(leaf, LEAF, *row[1:])
                counted += count
                if has_moved:
                    moved.add(leaf.index)
                    if leaf.control is not None:
                        new_versions[leaf.index] = leaf_round
        state_rows = _rows_by_leaf(answer.facts["leaves"], span, _STATE_WIDTH, "leaves")
        for leaf, row in zip(span.leaves, state_rows, strict=True):
            whole_number(row[1], new_versions[leaf.index], new_versions[leaf.index], "version")
            has_moved = leaf.index in moved
            schema.check_kept(row[2], leaf, counted, has_moved, global_round)
            leaf.refuse_other_strategy(orders.leaf_states(answer.states, leaf.index), row[2])
        _check_states(schema, answer.states, span, moved)
    return answer


def _rows_by_leaf(value: Any, span: RegionSpan, width: int, name: str) -> list[list[Any]]:
    """A row for each leaf of a region, in order."""
    leaf_rows = rows(value, width, len(span.leaves), name)
    if [row[0] for row in leaf_rows] != [leaf.index for leaf in span.leaves]:
        raise FactError(name, "of other leaves")
    return leaf_rows


def _check_states(
    schema: Schema, states: Mapping[str, State], span: RegionSpan, moved: Collection[int]
) -> None:
    """Raise unless the region's model (or its changed leaves') and leaves' states are possible."""
    brings_leaves = span.region.brings_leaves
    remaining = states.keys() - (set() if brings_leaves else {orders.MODEL})
    for leaf in span.leaves:
        if brings_leaves and leaf.index in moved:
            name = f"{leaf.index}/{orders.MODEL}"
            schema.check_model(states[name], leaf, span.region.model, span.rounds)
            remaining -= {name}
        current, _ = leaf.round_states()
        if leaf.control is not None:
            check_like(states[f"{leaf.index}/control"], current["control"])
            remaining -= {f"{leaf.index}/control"}
        remaining -= {name for name in remaining if name.startswith(f"{leaf.index}/{orders.STRATEGY}")}
    if remaining:
        raise FactError("states", ", ".join(sorted(remaining)[:3]))
    if brings_leaves:
        return
    largest = max(span.leaves, key=lambda leaf: max(leaf.train_samples.values(), default=0))
    schema.check_model(states[orders.MODEL], largest, span.region.model, span.rounds)
