"""Accepted training replies of a leaf, and their mean: the checks of `strategies.checks`, put together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import Message

from fedge.compression.chosen import uplink_of_clients
from fedge.config.config import Config
from fedge.exchange.schema import ReplyRejected, TrainTask, admit_train
from fedge.exchange.train import TrainReply
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.aggregation import Contribution
from fedge.leaf.strategies.checks import finite_mean
from fedge.states.averaging import State
from fedge.states.files import state_bytes
from fedge.states.norms import update_norm
from fedge.tasks.chosen import task_of


@dataclass(frozen=True)
class Checked:
    """A candidate train reply.

    Attributes:
        reply: the client's.
        norm: L2 norm of its update; None if not needed.
    """

    reply: TrainReply
    norm: float | None


@dataclass(frozen=True)
class Counted:
    """Totals of the replies of one leaf's clients in a leaf round.

    Attributes:
        replies: client → accepted reply.
        mean: of their states, weighted by samples; None when none counts.
        refused: client → why its reply does not count.
    """

    replies: dict[int, TrainReply]
    mean: State | None
    refused: dict[int, ReplyRejected]

    def without(self, refused: Mapping[int, ReplyRejected]) -> "Counted":
        """The rest of a leaf's replies without those of some more clients."""
        replies = {client: reply for client, reply in self.replies.items() if client not in refused}
        mean, _ = finite_mean(contributions(replies))
        return Counted(replies, mean, {**self.refused, **refused})


def contributions(replies: Mapping[int, TrainReply]) -> list[Contribution]:
    """Contributions of clients to their leaf, in the order of their replies."""
    return [
        Contribution(client, reply.state, reply.mean_weight, reply.version)
        for client, reply in replies.items()
    ]


def checked_reply(
    message: Message,
    client: int,
    leaf: Leaf,
    config: Config,
    folder: Path | None = None,
    model: State | None = None,
    keeps: bool = False,
    local_steps: int = 0,
    most_windows: int = 0,
) -> Checked | ReplyRejected:
    """A client's answer to a train message, checked by itself, or the reason for refusal.

    Args:
        message: the answer.
        client: its sender.
        leaf: the client's.
        config: its `train`, `guard` and `privacy` sections are read.
        folder: where clients may put their models as files; None: nowhere.
        model: that was sent; the leaf's, unless said otherwise.
        keeps: whether the client was to keep its algorithm's memory.
        local_steps: prescribed in place of epochs; 0 for epochs.
        most_windows: prescribed for training; 0 for all.
    """
    model, algorithm = leaf.model if model is None else model, leaf.algorithm
    task = TrainTask(
        model,
        min(leaf.train_samples[client], most_windows or leaf.train_samples[client]),
        config.train.local_epochs,
        config.train.batch_size,
        config.guard.client_timeout,
        leaf.variances,
        says_clipped=config.privacy.kind == "client-adaptive",
        least_loss=task_of(config.train).least_loss,
        form=None if algorithm is None else algorithm.form,
        keeps=keeps and algorithm is not None and algorithm.form.keeps,
        carries=algorithm is not None and algorithm.carries,
        local_steps=local_steps,
    )
    try:
        reply = admit_train(message, task, folder)
    except ReplyRejected as rejected:
        return rejected
    uplink = uplink_of_clients(config.uplink, leaf.parameter_names)
    if uplink is not None:  # by the form of the reply, whatever the client says
        sent = uplink.sent_bytes(reply.state) + state_bytes(reply.extra)
        reply = replace(reply, uplink_bytes=sent)
    if len(reply.state) < len(model):  # missing entries are the leaf's
        reply = replace(reply, state={name: reply.state.get(name, own) for name, own in model.items()})
    return Checked(reply, update_norm(reply.state, model) if config.guard.max_norm_factor else None)


def count_replies(leaf: Leaf, checked: Mapping[int, Checked], max_norm_factor: float) -> Counted:
    """Compare the replies of a leaf's clients, and average the accepted ones.

    The leaf takes in the norms of their updates.

    Args:
        leaf: whose clients they are.
        checked: client → its reply.
        max_norm_factor: largest update, in medians of the leaf's recent ones; 0 lets all pass.
    """
    replies = {client: entry.reply for client, entry in checked.items()}
    mean, refused = finite_mean(contributions(replies))
    norms = {c: e.norm for c, e in checked.items() if e.norm is not None and c not in refused}
    too_large = leaf.norms.too_large(norms, max_norm_factor)
    refused |= too_large
    counting = {client: reply for client, reply in replies.items() if client not in refused}
    if too_large:
        mean, _ = finite_mean(contributions(counting))
    return Counted(counting, mean, refused)
