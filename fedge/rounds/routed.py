"""Leaf servers that are a part of this process: messages to all their clients go out in one exchange.

One queue over all leaves, largest clients first, so no worker waits for a leaf; replies are routed back to
the leaf of their client.
"""

from collections.abc import Mapping
from typing import Any, Literal

from fedge.cloud.step import Probe
from fedge.clustering.updates import Updates
from fedge.exchange.engine import RunError
from fedge.exchange.evaluate import EvaluateReply, SplitName
from fedge.exchange.round_context import LEAF
from fedge.rounds.evaluation import Asked, Evaluating
from fedge.rounds.lines import TrainingLine
from fedge.rounds.port import Around
from fedge.rounds.training import LeafRounds
from fedge.states.averaging import State


class RoutedLeaves:
    """A `fedge.rounds.port.LeafPort` over the clients of this run's engine."""

    def __init__(self, around: Around) -> None:
        """Stand ready."""
        task, leaves, transport = around.task, around.leaves, around.transport
        self._transport = transport
        self._has_controls = task.config.scaffold.enabled
        self._leaf_rounds = LeafRounds(task.config, task.seed, leaves, transport)
        self._evaluating = Evaluating(transport, leaves, task.held_out, task.classes)

    def train(self, training: TrainingLine, leaf_round: int) -> int:
        """Run one exchange in which leaves, or forks of them, train."""
        transport = self._transport
        messages = self._leaf_rounds.messages(training, leaf_round, transport.clients.grid)
        exchange = transport.train(messages)
        counted = self._leaf_rounds.take(training, leaf_round, exchange.replies.values())
        transport.lap("aggregate")
        return counted

    def probe(
        self, start: State, leaf_round: int, updates: Updates | None, line: Literal["leaf", "probe"] = LEAF
    ) -> Probe:
        """Run one exchange in which all leaves' clients train one model."""
        return self._leaf_rounds.probe(start, leaf_round, updates, line)

    def evaluate(self, asked: Asked, phase: str = "") -> dict[int, EvaluateReply]:
        """Run one exchange in which clients evaluate models."""
        return self._evaluating.ask(asked, phase)

    def windows(self, split: SplitName) -> dict[int, int]:
        """Return partition id → windows of a split."""
        return self._evaluating.windows(split)

    def facts(self) -> dict[str, Any]:
        """Return nothing: the leaves hold it all."""
        return {}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Refuse to go on with a run whose clients' control variates lie elsewhere."""
        if facts.get("versions") and self._has_controls:
            raise RunError(
                "the clients' control variates of this run are at its leaf servers; go on with --leaves"
            )
