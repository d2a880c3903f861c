"""Accepting or refusing the train replies of a leaf, and their mean, by the checks of `strategies.checks`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import Message

from fedge.compression.configured import uplink_of_clients
from fedge.config.config import Config
from fedge.exchange.schema import ReplyRejected, TrainTask, admit_train
from fedge.exchange.train import TrainReply
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.aggregation import Contribution
from fedge.leaf.strategies.checks import finite_mean
from fedge.states.averaging import State
from fedge.states.files import state_bytes
from fedge.states.norms import update_norm
from fedge.tasks.configured import task_of


@dataclass(frozen=True)
class Checked:
    """A train reply, valid on its own.

    Attributes:
        reply: the reply.
        norm: L2 norm of its update; None if not needed.
    """

    reply: TrainReply
    norm: float | None


@dataclass(frozen=True)
class CountedReplies:
    """Outcome for the replies of one leaf in a leaf round.

    Attributes:
        replies: client → accepted reply.
        mean: mean of their states, weighted by samples; None if no reply was accepted.
        refused: client → reason for refusing its reply.
    """

    replies: dict[int, TrainReply]
    mean: State | None
    refused: dict[int, ReplyRejected]

    def without(self, refused: Mapping[int, ReplyRejected]) -> "CountedReplies":
        """The outcome if the replies of some more clients are refused."""
        replies = {client: reply for client, reply in self.replies.items() if client not in refused}
        mean, _ = finite_mean(contributions(replies))
        return CountedReplies(replies, mean, {**self.refused, **refused})


def contributions(replies: Mapping[int, TrainReply]) -> list[Contribution]:
    """Clients' contributions to their leaf, in the order of the replies."""
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
    """Check a single reply to a train message; returns the reply, or the reason for refusing it.

    Args:
        message: the reply.
        client: its sender.
        leaf: the sender's leaf.
        config: configuration, of which `train`, `guard` and `privacy` are read.
        folder: folder in which clients may put models as files; None for none.
        model: the sent model; by default the leaf's.
        keeps: whether the client had to store its algorithm's memory.
        local_steps: number of steps it had to take in place of epochs; 0 for epochs.
        most_windows: largest number of windows it may train on; 0 for all.
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
    if uplink is not None:  # decided by the reply's form, not by the client's claim
        sent = uplink.sent_bytes(reply.state) + state_bytes(reply.extra)
        reply = replace(reply, uplink_bytes=sent)
    if len(reply.state) < len(model):  # missing entries are the leaf's
        reply = replace(reply, state={name: reply.state.get(name, array) for name, array in model.items()})
    return Checked(reply, update_norm(reply.state, model) if config.guard.max_norm_factor else None)


def count_replies(leaf: Leaf, checked: Mapping[int, Checked], max_norm_factor: float) -> CountedReplies:
    """Compare the replies of a leaf's clients, and average the accepted ones.

    Records the norms of their updates in the leaf's history.

    Args:
        leaf: the clients' leaf.
        checked: client → its reply.
        max_norm_factor: largest allowed update norm, in medians of the leaf's recent norms; 0 for no limit.
    """
    replies = {client: entry.reply for client, entry in checked.items()}
    mean, refused = finite_mean(contributions(replies))
    norms = {c: e.norm for c, e in checked.items() if e.norm is not None and c not in refused}
    too_large = leaf.norms.too_large(norms, max_norm_factor)
    refused |= too_large
    counting = {client: reply for client, reply in replies.items() if client not in refused}
    if too_large:
        mean, _ = finite_mean(contributions(counting))
    return CountedReplies(counting, mean, refused)
