"""Leaf servers in this process: messages to the clients of all leaves go out in one exchange.

There is one queue over all leaves, largest clients first, so no worker waits for a leaf; replies are routed
back to the client's leaf.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Message

from fedge.cloud.probe import Probe
from fedge.cloud.region import Region
from fedge.exchange.content import total_payload_bytes
from fedge.exchange.engine import RunError
from fedge.exchange.evaluate import EvaluateReply
from fedge.exchange.joint import joint_question, parts_of
from fedge.exchange.round_context import is_of_version
from fedge.rounds.evaluation import Evaluating, EvaluationRequest
from fedge.rounds.lines import TrainingLine
from fedge.rounds.measurements.requests import ProbeRequest
from fedge.rounds.port import PortContext
from fedge.rounds.training import LeafRounds
from fedge.states.averaging import State
from fedge.states.restore_checks import checked_facts


@dataclass(frozen=True)
class _Ahead:
    """A leaf round requested before the start of its global round.

    Attributes:
        leaf_round: its number, counted over the run.
        questions: client → train message.
        replies: client → reply, for clients that trained.
    """

    leaf_round: int
    questions: Mapping[int, Message]
    replies: Mapping[int, Message]


class EnginePort:
    """A `fedge.rounds.port.LeafPort` over the clients of this run's engine."""

    def __init__(self, around: PortContext) -> None:
        """Stand ready."""
        task, leaves, transport = around.task, around.leaves, around.transport
        self._transport = transport
        self._has_controls = task.config.scaffold.enabled
        self._leaf_rounds = LeafRounds(task.config, leaves, transport)
        self._evaluating = Evaluating(transport, leaves, task)
        self._ahead: _Ahead | None = None

    def train(self, training: TrainingLine, leaf_round: int) -> int:
        """Run the exchange in which leaves, or their forks, train, unless all have trained ahead."""
        transport = self._transport
        replies = self._take_replies_ahead(training, leaf_round)
        if replies is None:
            messages = self._leaf_rounds.messages(training, leaf_round, transport.clients.grid)
            replies = transport.train(messages).replies
        counted = self._leaf_rounds.take(training, leaf_round, replies.values())
        transport.lap("aggregate")
        return counted

    def _take_replies_ahead(self, training: TrainingLine, leaf_round: int) -> dict[int, Message] | None:
        """Client → reply of a leaf round requested ahead, or None if there was none.

        Clients not trained then are asked now, so a failure counts in its own round.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        assert ahead.leaf_round == leaf_round
        self._transport.book.downlink_bytes += total_payload_bytes(ahead.questions.values())
        self._transport.book.asked_clients += len(ahead.questions)
        missing = self._repeat_messages(ahead.questions, ahead.replies)
        replies = dict(ahead.replies)
        self._transport.make_room(training.leaves[0].model)
        if missing:
            replies |= self._transport.train(missing, counted=False).replies
        return dict(sorted(replies.items()))

    def _repeat_messages(
        self, questions: Mapping[int, Message], replies: Mapping[int, Message]
    ) -> list[Message]:
        """The messages of clients without a reply, addressed to the nodes now holding their windows."""
        return [
            Message(question.content, self._transport.clients.node(client), question.metadata.message_type)
            for client, question in questions.items()
            if client not in replies
        ]

    def probe(self, asked: ProbeRequest) -> Probe:
        """Run one exchange in which the clients of leaves train one model."""
        return self._leaf_rounds.probe(asked)

    def evaluate(self, asked: EvaluationRequest, phase: str = "") -> dict[int, EvaluateReply]:
        """Run one exchange in which clients evaluate models."""
        return self._evaluating.ask(asked, phase)

    def evaluate_and_train(
        self, asked: EvaluationRequest, training: TrainingLine, leaf_round: int
    ) -> dict[int, EvaluateReply]:
        """Run one exchange for evaluating models, and for training in the next leaf round."""
        transport = self._transport
        next_round = transport.book.global_round + 1
        evaluate = self._by_client(self._evaluating.messages(asked))
        train = self._by_client(
            self._leaf_rounds.messages(training, leaf_round, transport.clients.grid, next_round)
        )
        transport.book.downlink_bytes += total_payload_bytes(evaluate.values())
        roles = {leaf.index: _role_of(leaf.model, asked.models[leaf.index]) for leaf in training.leaves}
        role_of = {client: roles[leaf.index] for leaf in training.leaves for client in leaf.clients}
        exchange = transport.evaluate_and_train(
            [
                joint_question(train[client], question, role_of[client]) if client in train else question
                for client, question in evaluate.items()
            ]
        )
        trained, evaluated = _split_replies(exchange.replies, train, evaluate)
        self._ahead = _Ahead(leaf_round, train, trained)
        missing = self._repeat_messages(evaluate, evaluated)
        if missing:
            evaluated |= transport.evaluate(missing, counted=False).replies
        return self._evaluating.take(asked, dict(sorted(evaluated.items())).values())

    def _by_client(self, messages: Iterable[Message]) -> dict[int, Message]:
        """Partition id → its message."""
        partition = self._transport.clients.partition
        return {partition(message.metadata.dst_node_id): message for message in messages}

    def has_combined(self, region: Region) -> bool:
        """False: regions are in this process, too."""
        return False

    def facts(self) -> dict[str, Any]:
        """Empty: the leaves hold all state."""
        return {}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Refuse to resume a run whose control variates are held by separate leaf servers."""
        if checked_facts(facts, {"versions"}).get("versions") and self._has_controls:
            raise RunError(
                "the clients' control variates of this run are at its leaf servers; resume with --leaves"
            )


def _role_of(model: State, models: Mapping[str, State]) -> str | None:
    """The role in which a model is evaluated, or None."""
    return next((role for role, evaluated in models.items() if evaluated is model), None)


def _split_replies(
    replies: Mapping[int, Message], train: Mapping[int, Message], evaluate: Mapping[int, Message]
) -> tuple[dict[int, Message], dict[int, Message]]:
    """Client → train reply, and client → evaluation reply, from joint replies.

    Args:
        replies: client → reply to a joint message, or to an evaluate message.
        train, evaluate: client → the two parts of its message.
    """
    trained, evaluated = {}, {}
    for client, reply in replies.items():
        training, evaluation = parts_of(reply) if client in train else (None, reply)
        if training is not None:
            trained[client] = training
        if evaluation is not None and is_of_version(evaluation, evaluate[client]):
            evaluated[client] = evaluation
    return trained, evaluated
