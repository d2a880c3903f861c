"""Leaf rounds: messages to clients, their replies, and the leaves' new models.

All leaves train at once, in one exchange (McMahan et al. 2017 at every leaf). `fedge.leaf.counting` accepts
or refuses replies, `fedge.leaf.leaf` updates a leaf's model.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from flwr.app import Message
from flwr.serverapp import Grid

from fedge.cloud.probe import Probe
from fedge.config.config import Config
from fedge.exchange.content import ARRAYS, CONTROL
from fedge.exchange.failure import MEMORY_LOST, Failure
from fedge.exchange.round_context import LEAF, Line, RoundContext
from fedge.exchange.schema import ReplyRejected
from fedge.exchange.train import TrainReply, train_messages
from fedge.leaf.controls import set_client_controls
from fedge.leaf.counting import Checked, CountedReplies, checked_reply, contributions, count_replies
from fedge.leaf.folds import means_without
from fedge.leaf.leaf import Leaf
from fedge.leaf.selection import selected
from fedge.leaf.spread import dispersion
from fedge.leaf.strategies.checks import finite_mean
from fedge.leaf.strategies.quorum import needed_replies, num_training
from fedge.leaf.training_history import Turns
from fedge.process.resources.threads import in_threads
from fedge.rounds.lines import TrainingLine, own_models
from fedge.rounds.measurements.requests import ProbeRequest, Receiver
from fedge.rounds.transport import Transport
from fedge.states.averaging import State
from fedge.states.records import to_record
from fedge.training.schedule import local_training

logger = logging.getLogger(__name__)


class LeafRounds:
    """Runs leaf rounds of leaves or their forks."""

    def __init__(self, config: Config, leaves: Sequence[Leaf], transport: Transport) -> None:
        """Store the constants of the run.

        Args:
            config: configuration, of which `hierarchy`, `train`, `guard` and `privacy` are read.
            leaves: all leaves, in order.
            transport: carries the messages, and holds the record of the round.
        """
        self._config = config
        self._leaves = leaves
        self._transport = transport
        self._asked: dict[tuple[Line, int], list[int]] = {}  # (line, leaf) → clients asked to train

    def messages(
        self, training: TrainingLine, leaf_round: int, grid: Grid, global_round: int | None = None
    ) -> list[Message]:
        """The train messages of a leaf round.

        Args:
            training: the line to train.
            leaf_round: counted over the run.
            grid: Flower's Grid, where strategies look for their nodes.
            global_round: global round of the leaf round; by default the current one.
        """
        context = self._transport.context(leaf_round, training.line, global_round)
        clients = self._transport.clients
        messages: list[Message] = []
        for leaf in training.leaves:
            if not leaf.clients:  # its clients have all moved to other leaves
                self._asked[training.line, leaf.index] = []
                continue
            chosen = self._asked[training.line, leaf.index] = self._choose_clients(leaf, context)
            nodes = [clients.node(client) for client in chosen]
            leaf_messages = leaf.configure_train(grid, nodes, context)
            clients.send_tickets(leaf_messages, {ARRAYS: leaf.model, CONTROL: leaf.sent_control})
            if leaf.algorithm is not None:
                node_of = {client: clients.node(client) for client in leaf.clients}
                leaf.algorithm.add_to_messages(leaf_messages, node_of, keep=training.line == LEAF)
            if leaf.sent_control is not None:
                control_of = {
                    clients.node(client): control for client, control in leaf.client_controls.items()
                }
                set_client_controls(leaf_messages, leaf.sent_control, control_of, clients.shares)
            messages.extend(leaf_messages)
        return messages

    def _choose_clients(self, leaf: Leaf, context: RoundContext) -> list[int]:
        """The training clients of a leaf in a leaf round, ascending."""
        count = num_training(self._config, len(leaf.clients), context.global_round, leaf.index)
        stream_key, turns = context.stream_of(leaf.index), leaf.turns or Turns()
        candidates = turns.candidates(leaf.train_samples)
        hierarchy = self._config.hierarchy
        return selected(
            hierarchy, candidates, count, context.seed, stream_key, leaf.index, context.global_round
        )

    def take(self, training: TrainingLine, leaf_round: int, replies: Iterable[Message]) -> int:
        """Let every leaf combine its clients' replies; return the number of accepted ones.

        Args:
            training: the trained line.
            leaf_round: counted over the run.
            replies: in partition-id order.
        """
        per_leaf = self._check_replies(training, replies)
        settings = local_training(self._config.train, self._transport.book.global_round)
        context = self._transport.context(leaf_round, training.line)
        total = 0
        for leaf in training.leaves:
            checked = per_leaf.pop(leaf.index)
            counted = count_replies(leaf, checked, self._config.guard.max_norm_factor)
            while self._has_quorum(training, leaf, len(counted.replies), leaf_round):
                assert counted.mean is not None
                refused = leaf.aggregate_train(
                    context, counted.replies, counted.mean, settings, self._transport.shared.keep
                )
                if not refused:
                    break
                counted = counted.without(refused)
            if training.line == LEAF:
                self._note_turns(leaf, counted.replies, leaf_round)
                requests = self._transport.book.requests
                _note_updates(requests.receivers_of(leaf.index), leaf, counted.replies)
                if requests.dispersion and counted.replies:
                    states = [reply.state for reply in counted.replies.values()]
                    self._transport.book.dispersion[leaf.index] = dispersion(states, leaf.parameter_names)
                if leaf.index in requests.alone:
                    self._transport.book.folds[leaf.index] = _fold_means(counted.replies)
            self._record_replies(training, leaf, checked, counted)
            total += len(counted.replies)
            leaf.keep_states(self._transport.shared.keep)
        return total

    def _check_replies(
        self,
        training: TrainingLine,
        messages: Iterable[Message],
        model: State | None = None,
        most_windows: int = 0,
    ) -> dict[int, dict[int, Checked]]:
        """Leaf → client → reply valid on its own; records why other replies are refused.

        Clients trained `model`, by default their leaf's, on at most `most_windows` windows.
        """
        transport = self._transport
        leaf_of = {client: leaf.index for leaf in self._leaves for client in leaf.clients}
        keeps, steps = training.line == LEAF and model is None, transport.context(0).local_steps

        def check(message: Message) -> Checked | ReplyRejected:
            client = transport.clients.partition(message.metadata.src_node_id)
            leaf = training.by_index[leaf_of[client]]
            folder = transport.shared.folder if transport.clients.any_shares else None
            options = folder, model, keeps, steps, most_windows
            return checked_reply(message, client, leaf, self._config, *options)

        per_leaf: dict[int, dict[int, Checked]] = {leaf.index: {} for leaf in training.leaves}
        messages = list(messages)
        apply = map if transport.shared.folder is None else in_threads  # threads pay off for checksums
        for message, checked in zip(messages, apply(check, messages), strict=True):
            client = transport.clients.partition(message.metadata.src_node_id)
            if isinstance(checked, ReplyRejected):
                transport.note_failure(client, checked.failure)
            else:
                per_leaf[leaf_of[client]][client] = checked
        transport.shared.sweep()  # opened files stay valid
        return per_leaf

    def _record_replies(
        self, training: TrainingLine, leaf: Leaf, checked: Mapping[int, Checked], counted: CountedReplies
    ) -> None:
        """Record all replies to a leaf."""
        book = self._transport.book
        for client, rejected in counted.refused.items():
            self._transport.note_failure(client, rejected.failure)
        for client, reply in counted.replies.items():
            book.note_trained(client, reply, training.line)
            if reply.lost and training.line == LEAF:
                self._transport.note_failure(client, Failure(MEMORY_LOST, reply.lost))
        book.uplink_bytes += sum(entry.reply.uplink_bytes for entry in checked.values())
        book.answered += len(checked)
        if counted.replies:
            trained = sum(leaf.train_samples[client] for client in counted.replies)
            seconds = sum(reply.seconds for reply in counted.replies.values())
            self._transport.seconds_per_window = seconds / trained

    def _note_turns(self, leaf: Leaf, replies: Mapping[int, TrainReply], leaf_round: int) -> None:
        """Record which of a leaf's clients were asked to train, and their losses."""
        asked, book = self._asked[LEAF, leaf.index], self._transport.book
        for client in asked:
            book.note_asked(client)
        if leaf.turns is not None:
            leaf.turns.note(asked, {client: reply.loss for client, reply in replies.items()}, leaf_round)

    def _has_quorum(self, training: TrainingLine, leaf: Leaf, count: int, leaf_round: int) -> bool:
        """Whether `count` replies are enough to change a leaf's model; logs it if not."""
        needed, book = needed_replies(self._config, leaf.held_out), self._transport.book
        if count < needed and training.line == LEAF and leaf.clients:
            book.note_kept_model(leaf.index)
            logger.warning(
                "global round %d, leaf round %d: leaf %d keeps its model: %d of %d replies that it needs",
                book.global_round, leaf_round, leaf.index, count, needed,
            )  # fmt: skip
        return count >= needed

    def probe(self, asked: ProbeRequest) -> Probe:
        """Let leaves train one model for a leaf round, for comparison only."""
        transport, keep = self._transport, self._transport.shared.keep
        start, leaves, receiver = keep(asked.start), asked.leaves, asked.receiver
        nodes = [transport.clients.node(client) for leaf in leaves for client in leaf.clients]
        line_context = transport.context(asked.leaf_round, asked.line)
        context = replace(line_context, most_windows=asked.most_windows)
        messages = train_messages(nodes, to_record(start), context)
        transport.clients.send_tickets(messages, {ARRAYS: start})
        by_node = {message.metadata.dst_node_id: message for message in messages}
        for leaf in leaves:
            if leaf.algorithm is not None:
                node_of = {client: transport.clients.node(client) for client in leaf.clients}
                leaf.algorithm.add_to_messages([by_node[node] for node in node_of.values()], node_of)
        exchange = transport.train(messages, phase="cluster")
        lines = own_models(leaves)
        per_leaf = self._check_replies(lines, exchange.replies.values(), start, asked.most_windows)
        means: list[State | None] = []
        for leaf in leaves:
            replies = {client: checked.reply for client, checked in per_leaf[leaf.index].items()}
            transport.book.uplink_bytes += sum(reply.uplink_bytes for reply in replies.values())
            _note_updates([receiver] if receiver else [], leaf, replies)
            means.append(finite_mean(contributions(replies))[0])
        return Probe(
            start,
            [start if mean is None else keep(mean) for mean in means],
            None if receiver is None else receiver.updates,
        )


def _note_updates(receivers: Sequence[Receiver], leaf: Leaf, replies: Mapping[int, TrainReply]) -> None:
    """Pass the models trained by a leaf's clients to the receivers."""
    for receiver in receivers:
        for client, reply in replies.items():
            receiver.note(client, leaf.index, reply.state, reply.samples)


def _fold_means(replies: Mapping[int, TrainReply]) -> dict[int, State]:
    """Client → mean model of the other clients of its leaf."""
    return means_without(
        {client: reply.state for client, reply in replies.items()},
        {client: float(reply.samples) for client, reply in replies.items()},
    )
