"""How clients are asked to judge models, and which of their answers count.

One exchange carries any number of models per leaf, each under its role, whoever wants to know: the gates, the
cloud, or fine-tuning. Called by `fedge.rounds.strategy`; what an answer must be stands in
`fedge.leaf.checks`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message

from fedge.exchange.clients import Clients
from fedge.exchange.messages import (
    OWN,
    Errand,
    JudgeReply,
    SplitName,
    judge_messages,
    judged_record,
    read_judge,
)
from fedge.leaf import checks as guard
from fedge.leaf.leaf import Leaf
from fedge.states.averaging import State
from fedge.states.records import to_record

Failures = list[tuple[int, str]]
"""Client and reason, in the order in which they were seen."""


@dataclass(frozen=True)
class Asked:
    """Who is asked to judge which models.

    Attributes:
        models: leaf → role → model for the clients that train.
        splits: on which of a client's windows.
        newcomers: leaf → role → model for its newcomers; empty: they are not asked.
    """

    models: Mapping[int, Mapping[str, State]]
    splits: Sequence[SplitName]
    newcomers: Mapping[int, Mapping[str, State]] = field(default_factory=dict)

    def of(self, client: int, leaf: Leaf) -> Mapping[str, State]:
        """Return the models that a client or newcomer of a leaf is to judge, by role."""
        by_leaf = self.newcomers if self.newcomers and client not in leaf.clients else self.models
        return by_leaf[leaf.index]

    def distinct_models(self) -> list[State]:
        """Return every model once, however often it is asked about."""
        roles_of = [*self.models.values(), *self.newcomers.values()]
        return list({id(model): model for roles in roles_of for model in roles.values()}.values())


class Judging:
    """Asks the clients of all leaves to judge models, and reads their answers."""

    def __init__(
        self,
        clients: Clients,
        leaves: Sequence[Leaf],
        held_out: Mapping[int, Mapping[str, int]],
        classes: int,
    ) -> None:
        """Keep what stays the same through the run.

        Args:
            clients: who is there.
            leaves: in order; together they hold every client once, newcomers included.
            held_out: partition id → windows of its "val" and "test" split.
            classes: of the data.
        """
        self._clients = clients
        self._leaves = leaves
        self._leaf_of = {client: leaf for leaf in leaves for client in (*leaf.clients, *leaf.newcomers)}
        self._held_out = held_out
        self._classes = classes

    def messages(self, asked: Asked, errand: Errand) -> list[Message]:
        """Return one message per client that is asked, leaf by leaf.

        Args:
            asked: who judges what.
            errand: of the round.
        """
        records = {id(model): to_record(model) for model in asked.distinct_models()}
        messages: list[Message] = []
        for leaf in self._leaves:
            for members, by_leaf in ((leaf.clients, asked.models), (leaf.newcomers, asked.newcomers)):
                if not by_leaf or not members:
                    continue
                nodes, models = [self._clients.node(client) for client in members], by_leaf[leaf.index]
                of_role = {role: records[id(model)] for role, model in models.items()}
                made = judge_messages(nodes, of_role, asked.splits, errand)
                self._clients.send_tickets(made, {judged_record(role): m for role, m in models.items()})
                messages += made
        return messages

    def read(self, asked: Asked, replies: Iterable[Message]) -> tuple[dict[int, JudgeReply], Failures]:
        """Return the judgements that count, client by client, and the failures to be noted.

        A loss that is not finite is that of a model which has diverged: it is noted, the judgement counts.

        Args:
            asked: what the clients were asked.
            replies: theirs.
        """
        judged: dict[int, JudgeReply] = {}
        failures: Failures = []
        for message in replies:
            client = self._clients.partition(message.metadata.src_node_id)
            windows: dict[str, int] = {split: self._held_out[client][split] for split in asked.splits}
            roles = asked.of(client, self._leaf_of[client])
            try:
                judged[client] = checked_judgements(message, roles, windows, self._classes)
            except guard.ReplyRejected as rejected:
                failures.append((client, str(rejected)))
                continue
            losses: dict[tuple[str, str], float] = {
                key: judgement.loss for key, judgement in judged[client].items()
            }
            failures += [(client, f"loss not finite ({at})") for at in guard.not_finite_losses(losses)]
        return judged, failures


def checked_judgements(
    message: Message, roles: Collection[str], windows: Mapping[str, int], classes: int
) -> JudgeReply:
    """Return the judgements of a client's reply.

    Args:
        message: the reply.
        roles: the models that the client was to judge.
        windows: split → windows of the client.
        classes: of the data.

    Raises:
        ReplyRejected: it is not what was asked for.
    """
    try:
        judgements = read_judge(message)
    except Exception as error:  # whatever a client can put into a message
        raise guard.ReplyRejected("not readable", f"{type(error).__name__}: {error}"[:200]) from error
    guard.check_judgements(
        {(role, split): judgement.confusion for (role, split), judgement in judgements.items()},
        roles, windows, classes,
    )  # fmt: skip
    on_val = {role: judgement for (role, split), judgement in judgements.items() if split == "val"}
    guard.check_only_one_right(
        {role: judgement.only_one_right for role, judgement in on_val.items()},
        {role: judgement.confusion for role, judgement in on_val.items()},
        OWN,
    )
    return judgements
