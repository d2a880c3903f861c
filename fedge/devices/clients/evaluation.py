"""How good a version is: clients with test windows are asked, before further training."""

from collections.abc import Callable, Mapping, Sequence

from fedge.clustering.likeness.evidence import Answers, collect_answers, leaf_role
from fedge.devices.clients.algorithms import ClockAlgorithms
from fedge.devices.clients.lookahead import RoundContexts, Waiting
from fedge.devices.clients.results import Population
from fedge.devices.servers.vectors import Version
from fedge.exchange.algorithm import OWN_MODELS
from fedge.exchange.clients import Clients
from fedge.exchange.engine import LookAheadEngine
from fedge.exchange.evaluate import OWN, EvaluateReply, Evaluation, SplitName, evaluate_messages
from fedge.exchange.failure import Failure, loss_not_finite
from fedge.exchange.schema import ReplyRejected, admit_evaluations, not_finite_losses
from fedge.rounds.measurements.results import ModelResult
from fedge.tasks.chosen import CLASSIFICATION
from fedge.tasks.task import Task

_AT_ONCE = -2  # before all training


class ClockEvaluation:
    """Asks clients to evaluate versions.

    Attributes:
        windows: client → test windows, for clients with any.
        held_out: client → validation windows, for clients with any.
    """

    def __init__(
        self,
        engine: LookAheadEngine,
        clients: Clients,
        round_contexts: RoundContexts,
        windows: Mapping[int, int],
        classes: int,
        waiting: Waiting,
        held_out: Mapping[int, int] | None = None,
        learned: Task = CLASSIFICATION,
        algorithms: ClockAlgorithms | None = None,
    ) -> None:
        """Stand ready.

        Args:
            engine: delivers messages by urgency.
            clients: which node holds which partition.
            round_contexts: facts for clients.
            windows: client → test windows; those without any are not asked.
            classes: of the data.
            waiting: for replies.
            held_out: client → validation windows.
            learned: the task of the run.
            algorithms: the leaves' sides of their clients' algorithm; None where options say all.
        """
        self._algorithms = algorithms
        self._engine = engine
        self._clients = clients
        self._round_contexts = round_contexts
        self.windows = {client: count for client, count in sorted(windows.items()) if count}
        self.held_out = {client: count for client, count in sorted((held_out or {}).items()) if count}
        self._classes = classes
        self._learned = learned
        self._waiting = waiting

    def evaluate(
        self, served: Callable[[int], Version], global_round: int
    ) -> tuple[dict[int, Evaluation], dict[int, Failure]]:
        """Client → evaluation, on test windows, of its served model; client → why there is none.

        Args:
            served: client → its served model.
            global_round: of the evaluation.
        """
        return self._served(served, "test", self.windows, global_round)

    def validate(
        self, served: Callable[[int], Version], global_round: int
    ) -> tuple[dict[int, Evaluation], dict[int, Failure]]:
        """The same for validation windows, of clients with test windows, too."""
        windows = {client: count for client, count in self.held_out.items() if client in self.windows}
        return self._served(served, "val", windows, global_round)

    def _served(
        self,
        served: Callable[[int], Version],
        split: SplitName,
        windows: Mapping[int, int],
        global_round: int,
    ) -> tuple[dict[int, Evaluation], dict[int, Failure]]:
        """Client → evaluation of its served model on a split; client → why there is none."""
        asked = {client: {OWN: served(client)} for client in windows}
        replies, failures = self._asked(asked, split, windows, global_round)
        return {client: reply[OWN, split] for client, reply in replies.items()}, failures

    def own_models(
        self, served: Callable[[int], Version], who: Population, global_round: int
    ) -> tuple[list[ModelResult], dict[int, Failure]]:
        """Clients with the models of their algorithm, on test windows, and the clients without any.

        Args:
            served: client → its served model.
            who: devices of the run.
            global_round: of the evaluation.
        """
        algorithms = self._algorithms
        if algorithms is None:
            return [], {}
        asked = [client for client in self.windows if algorithms.asked_models(client)]
        replies, failures = self._asked(
            {client: {OWN_MODELS: served(client)} for client in asked},
            "test", self.windows, global_round, algorithms,
        )  # fmt: skip
        return [
            ModelResult(
                client, who.leaf_of[client], role.rpartition("/")[2], one.windows, one.score, one.loss,
                client in who.unseen,
            )
            for client, found in replies.items()
            for (role, _), one in found.items()
        ], failures  # fmt: skip

    def cross_losses(
        self, models: Sequence[Version], who: Population, global_round: int
    ) -> tuple[Answers, dict[int, Failure]]:
        """Losses of all models on training clients' validation windows, and the clients without any.

        Args:
            models: of the cloud's children, in order.
            who: devices of the run, under these.
            global_round: of the evaluation.
        """
        windows = {client: count for client, count in self.held_out.items() if client in who.windows}
        roles = {leaf_role(leaf): model for leaf, model in enumerate(models)}
        replies, failures = self._asked(dict.fromkeys(windows, roles), "val", windows, global_round)
        nbytes = len(windows) * sum(model.nbytes for model in models)
        leaf_of = {client: who.leaf_of[client] for client in windows}
        return collect_answers(replies, leaf_of, windows, nbytes), failures

    def _asked(
        self,
        asked: Mapping[int, Mapping[str, Version]],
        split: SplitName,
        windows: Mapping[int, int],
        global_round: int,
        algorithms: ClockAlgorithms | None = None,
    ) -> tuple[dict[int, EvaluateReply], dict[int, Failure]]:
        """Replies of clients to an evaluation of models by role, and the failed clients.

        With `algorithms`, they answer for all models of their algorithm in place of the given one.
        """
        context = self._round_contexts(global_round, global_round)
        messages = [
            evaluate_messages(
                [self._clients.node(client)],
                {role: each.record for role, each in models.items()},
                [split],
                context,
            )[0]
            for client, models in asked.items()
        ]
        if algorithms is not None:
            for client, message in zip(asked, messages, strict=True):
                algorithms.tell_models(message, client)
        ids = [self._engine.push_due(message, _AT_ONCE) for message in messages]
        found: dict[int, EvaluateReply] = {}
        failures: dict[int, Failure] = {}
        for client, message, message_id in zip(asked, messages, ids, strict=True):
            reply = self._waiting.reply(message, message_id)
            if isinstance(reply, Failure):
                failures[client] = reply
                continue
            try:
                roles = list(asked[client]) if algorithms is None else algorithms.form.roles()
                found[client] = admit_evaluations(
                    reply, roles, {split: windows[client]}, self._classes, self._learned
                )
            except ReplyRejected as error:
                failures[client] = error.failure
                continue
            for where in not_finite_losses({key: each.loss for key, each in found[client].items()}):
                failures.setdefault(client, loss_not_finite(where))
        return found, failures
