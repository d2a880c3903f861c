"""Which training replies count at a leaf, and their mean: what `fedge.leaf.checks` checks, put together."""

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import Message

from fedge.config.sections import Config
from fedge.exchange.train import TrainReply, read_train
from fedge.leaf import checks as guard
from fedge.leaf.leaf import Leaf
from fedge.states.averaging import State
from fedge.states.norms import update_norm


@dataclass(frozen=True)
class Checked:
    """A train reply that may count.

    Attributes:
        reply: what the client says.
        norm: L2 norm of its update; None where nobody needs it.
    """

    reply: TrainReply
    norm: float | None


@dataclass(frozen=True)
class Counted:
    """What the replies of one leaf's clients come to in a leaf round.

    Attributes:
        replies: client → reply, of those that count.
        mean: of their states, weighted by samples; None when none counts.
        refused: client → why its reply does not count.
    """

    replies: dict[int, TrainReply]
    mean: State | None
    refused: dict[int, guard.ReplyRejected]


def checked_reply(message: Message, client: int, leaf: Leaf, config: Config) -> Checked | guard.ReplyRejected:
    """Return a client's answer to a train message, looked through by itself, or why it does not count.

    Args:
        message: the answer.
        client: whose it is.
        leaf: the client's, with the model that was sent.
        config: its `guard` section is read.
    """
    try:
        reply = read_train(message)
        guard.check_train(
            reply.state, leaf.model, reply.samples, leaf.train_samples[client], reply.steps, reply.loss
        )
    except guard.ReplyRejected as rejected:
        return rejected
    except Exception as error:  # whatever a client can put into a message
        return guard.ReplyRejected("not readable", f"{type(error).__name__}: {error}"[:200])
    return Checked(reply, update_norm(reply.state, leaf.model) if config.guard.max_norm_factor else None)


def count_replies(leaf: Leaf, checked: Mapping[int, Checked], max_norm_factor: float) -> Counted:
    """Compare the replies of a leaf's clients with each other, and average those that count.

    The leaf takes in the norms of their updates.

    Args:
        leaf: whose clients they are.
        checked: client → its reply.
        max_norm_factor: largest update, in medians of the leaf's recent ones; 0 lets all pass.
    """
    replies = {client: entry.reply for client, entry in checked.items()}
    states = {client: reply.state for client, reply in replies.items()}
    weights = {client: float(reply.samples) for client, reply in replies.items()}
    mean, refused = guard.finite_mean(states, weights)
    norms = {c: e.norm for c, e in checked.items() if e.norm is not None and c not in refused}
    too_large = leaf.norms.too_large(norms, max_norm_factor)
    refused |= too_large
    counting = {client: reply for client, reply in replies.items() if client not in refused}
    if too_large:
        mean, _ = guard.finite_mean({client: states[client] for client in counting}, weights)
    return Counted(counting, mean, refused)
