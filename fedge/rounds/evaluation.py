"""Evaluation of models by clients: requests, and accepted replies.

One exchange carries any number of models per leaf, each under its role, whether for gates, the cloud or
fine-tuning.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message

from fedge.cloud.region import Region, leaves_below
from fedge.exchange.algorithm import OWN_MODELS
from fedge.exchange.evaluate import EvaluateReply, SplitName, evaluate_messages, evaluated_record
from fedge.exchange.failure import nonfinite_loss_note
from fedge.exchange.schema import ReplyRejected, admit_evaluations, not_finite_losses
from fedge.leaf.leaf import Leaf
from fedge.leaf.moving import leaf_of_each
from fedge.leaf.server import Server
from fedge.rounds.task import RunTask
from fedge.rounds.transport import Transport
from fedge.states.averaging import State
from fedge.states.distinct import StateCache
from fedge.states.records import to_record
from fedge.tasks.configured import task_of


@dataclass(frozen=True)
class EvaluationRequest:
    """Models to be evaluated by clients.

    Attributes:
        models: leaf → role → model for the training clients.
        splits: splits of a client's windows to evaluate on.
        unseen_clients: leaf → role → model for its unseen clients; empty to leave them out.
    """

    models: Mapping[int, Mapping[str, State]]
    splits: Sequence[SplitName]
    unseen_clients: Mapping[int, Mapping[str, State]] = field(default_factory=dict)

    def models_of(self, client: int, leaf: Leaf) -> Mapping[str, State]:
        """The models evaluated by a client or unseen client of a leaf, by role."""
        by_leaf = self.unseen_clients if self.unseen_clients and client not in leaf.clients else self.models
        return by_leaf[leaf.index]

    def of_leaves(self, servers: Sequence[Server]) -> "EvaluationRequest":
        """The request by leaf, if this one is by child of a server (leaves, or regions above them)."""

        def spread(
            by_server: Mapping[int, Mapping[str, State]], unseen: bool
        ) -> dict[int, Mapping[str, State]]:
            return {
                leaf.index: _models_for_leaf(leaf, server, by_server[server.number], unseen)
                for server in servers
                if server.number in by_server
                for leaf in leaves_below(server)
            }

        return EvaluationRequest(spread(self.models, False), self.splits, spread(self.unseen_clients, True))


def _models_for_leaf(
    leaf: Leaf, server: Server, models: Mapping[str, State], unseen: bool
) -> Mapping[str, State]:
    """Role → model evaluated by a leaf's clients, for a request to the leaf or to a region above."""
    if not isinstance(server, Region):
        return models
    return {role: server.evaluated_model(leaf, role, model, unseen) for role, model in models.items()}


class Evaluating:
    """Asks the clients of all leaves to evaluate models, and reads their replies."""

    def __init__(self, transport: Transport, leaves: Sequence[Leaf], task: RunTask) -> None:
        """Store the constants of the run.

        Args:
            transport: carries the messages, and holds the record of the round.
            leaves: all leaves, in order; every client, seen or unseen, belongs to exactly one.
            task: task of the run.
        """
        self._transport, self._leaves, self._task = transport, leaves, task

    def ask(self, request: EvaluationRequest, phase: str = "") -> dict[int, EvaluateReply]:
        """Let clients evaluate models; return the accepted evaluations, client by client.

        Args:
            request: clients, and models to evaluate.
            phase: phase charged with the time, if the exchange is not a step itself.
        """
        exchange = self._transport.evaluate(self.messages(request), phase)
        return self.take(request, exchange.replies.values())

    def messages(self, request: EvaluationRequest) -> list[Message]:
        """One message per client asked, leaf by leaf.

        Args:
            request: clients, and models to evaluate.
        """
        context, clients = self._transport.context(self._transport.book.global_round), self._transport.clients
        record = StateCache(to_record)  # messages share equal content
        messages: list[Message] = []
        for leaf in self._leaves:
            for members, by_leaf in (
                (leaf.clients, request.models),
                (leaf.unseen_clients, request.unseen_clients),
            ):
                if leaf.index not in by_leaf or not members:
                    continue
                nodes, models = [clients.node(client) for client in members], by_leaf[leaf.index]
                records = {role: record(model) for role, model in models.items()}
                leaf_messages = evaluate_messages(nodes, records, request.splits, context)
                if OWN_MODELS in models and leaf.algorithm is not None:
                    node_of = {client: clients.node(client) for client in members}
                    leaf.algorithm.add_to_messages(
                        leaf_messages, node_of, evaluate=True, unseen=members is leaf.unseen_clients
                    )
                clients.send_tickets(leaf_messages, {evaluated_record(role): m for role, m in models.items()})
                messages += leaf_messages
        return messages

    def take(self, request: EvaluationRequest, replies: Iterable[Message]) -> dict[int, EvaluateReply]:
        """The accepted evaluations, client by client, with failures noted.

        An infinite or NaN loss indicates a diverged model; it is recorded, and the evaluation counts.

        Args:
            request: the request.
            replies: the clients' replies.
        """
        evaluated: dict[int, EvaluateReply] = {}
        leaf_of, task = leaf_of_each(self._leaves), self._task
        learned = task_of(task.config.train)
        for message in replies:
            client = self._transport.clients.partition(message.metadata.src_node_id)
            windows: dict[str, int] = {split: task.held_out[client][split] for split in request.splits}
            roles = roles_of(request.models_of(client, leaf_of[client]), leaf_of[client])
            try:
                evaluated[client] = admit_evaluations(message, roles, windows, task.classes, learned)
            except ReplyRejected as rejected:
                self._transport.note_failure(client, rejected.failure)
                continue
            losses: dict[tuple[str, str], float] = {
                key: evaluation.loss for key, evaluation in evaluated[client].items()
            }
            for evaluation_key in not_finite_losses(losses):
                self._transport.note_failure(client, nonfinite_loss_note(evaluation_key))
        return evaluated


def roles_of(models: Mapping[str, State], leaf: Leaf) -> list[str]:
    """The roles in a client's reply, with the roles of its algorithm's models spelt out."""
    algorithm_roles = leaf.algorithm.form.roles() if leaf.algorithm is not None else []
    return [role for name in models for role in (algorithm_roles if name == OWN_MODELS else [name])]
