"""Evaluation of versions by clients with test windows, ahead of further training."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from fedge.clustering.likeness.evidence import Answers, collect_answers, leaf_role
from fedge.devices.clients.access import ClientAccess
from fedge.devices.clients.algorithms import ClockAlgorithms
from fedge.devices.clients.results import Population
from fedge.devices.servers.vectors import Version
from fedge.exchange.algorithm import OWN_MODELS
from fedge.exchange.evaluate import OWN, EvaluateReply, Evaluation, SplitName, evaluate_messages
from fedge.exchange.failure import Failure, nonfinite_loss_note
from fedge.exchange.schema import ReplyRejected, admit_evaluations, not_finite_losses
from fedge.rounds.measurements.results import ModelResult, model_results
from fedge.tasks.configured import task_of


class ClockEvaluation:
    """Asks clients to evaluate versions.

    Attributes:
        windows: client → test windows, for clients with any.
        held_out: client → validation windows, for clients with any.
    """

    def __init__(
        self,
        access: ClientAccess,
        windows: Mapping[int, int],
        classes: int,
        held_out: Mapping[int, int] | None = None,
    ) -> None:
        """Store the arguments.

        Args:
            access: access to the clients.
            windows: client → test windows; clients without any are not asked.
            classes: number of classes in the data.
            held_out: client → validation windows.
        """
        self._access = access
        self.windows = {client: count for client, count in sorted(windows.items()) if count}
        self.held_out = {client: count for client, count in sorted((held_out or {}).items()) if count}
        self._classes = classes

    def evaluate(
        self, served: Callable[[int], Version], global_round: int
    ) -> tuple[dict[int, Evaluation], dict[int, Failure]]:
        """Evaluations of served models on test windows, by client, and failures by client.

        Args:
            served: client → its served model.
            global_round: global round of the evaluation.
        """
        return self._evaluate_served(served, "test", self.windows, global_round)

    def validate(
        self, served: Callable[[int], Version], global_round: int
    ) -> tuple[dict[int, Evaluation], dict[int, Failure]]:
        """The same on validation windows, for clients with both these and test windows."""
        windows = {client: count for client, count in self.held_out.items() if client in self.windows}
        return self._evaluate_served(served, "val", windows, global_round)

    def _evaluate_served(
        self,
        served: Callable[[int], Version],
        split: SplitName,
        windows: Mapping[int, int],
        global_round: int,
    ) -> tuple[dict[int, Evaluation], dict[int, Failure]]:
        """Evaluations of served models on a split, by client, and failures by client."""
        models_by_client = {client: {OWN: served(client)} for client in windows}
        replies, failures = self._ask(models_by_client, split, windows, global_round)
        return {client: reply[OWN, split] for client, reply in replies.items()}, failures

    def own_models(
        self, served: Callable[[int], Version], population: Population, global_round: int
    ) -> tuple[list[ModelResult], dict[int, Failure]]:
        """Clients' evaluations of the models of their algorithm on test windows, and failures.

        Args:
            served: client → its served model.
            population: clients and leaves of the run.
            global_round: global round of the evaluation.
        """
        algorithms = self._access.algorithms
        if algorithms is None:
            return [], {}
        clients = [client for client in self.windows if algorithms.asked_models(client)]
        replies, failures = self._ask(
            {client: {OWN_MODELS: served(client)} for client in clients},
            "test", self.windows, global_round, algorithms,
        )  # fmt: skip
        rows = (
            model_results(client, population.leaf_of[client], client in population.unseen, evaluations)
            for client, evaluations in replies.items()
        )
        return list(chain.from_iterable(rows)), failures

    def cross_losses(
        self, models: Sequence[Version], population: Population, global_round: int
    ) -> tuple[Answers, dict[int, Failure]]:
        """Losses of all models on the validation windows of training clients, and failures.

        Args:
            models: models of the cloud's children, in order.
            population: clients of the run, under these children.
            global_round: global round of the evaluation.
        """
        windows = {client: count for client, count in self.held_out.items() if client in population.windows}
        roles = {leaf_role(leaf): model for leaf, model in enumerate(models)}
        replies, failures = self._ask(dict.fromkeys(windows, roles), "val", windows, global_round)
        nbytes = len(windows) * sum(model.nbytes for model in models)
        leaf_of = {client: population.leaf_of[client] for client in windows}
        return collect_answers(replies, leaf_of, windows, nbytes), failures

    def _ask(
        self,
        models_by_client: Mapping[int, Mapping[str, Version]],
        split: SplitName,
        windows: Mapping[int, int],
        global_round: int,
        algorithms: ClockAlgorithms | None = None,
    ) -> tuple[dict[int, EvaluateReply], dict[int, Failure]]:
        """Clients' replies to an evaluation of models by role, and failures.

        With `algorithms`, clients evaluate all models of their algorithm instead of the given one.
        """
        access, task = self._access, task_of(self._access.config.train)
        context = access.round_contexts(global_round, global_round)
        messages = {
            client: evaluate_messages(
                [access.clients.node(client)],
                {role: each.record for role, each in models.items()},
                [split],
                context,
            )[0]
            for client, models in models_by_client.items()
        }
        if algorithms is not None:
            for client, message in messages.items():
                algorithms.prepare_evaluation(message, client)
        evaluations: dict[int, EvaluateReply] = {}
        failures: dict[int, Failure] = {}
        for client, reply in access.replies(messages):
            if isinstance(reply, Failure):
                failures[client] = reply
                continue
            try:
                roles = list(models_by_client[client]) if algorithms is None else algorithms.form.roles()
                window_count: dict[str, int] = {split: windows[client]}
                evaluations[client] = admit_evaluations(reply, roles, window_count, self._classes, task)
            except ReplyRejected as error:
                failures[client] = error.failure
                continue
            for location in not_finite_losses({key: each.loss for key, each in evaluations[client].items()}):
                failures.setdefault(client, nonfinite_loss_note(location))
        return evaluations, failures
