"""Steps of a global round after its gates: fine-tuning, and evaluations that only measure served models.

They are due as options say, and in the last round. A callback may make a round the last when it is over: then
they are carried out late, with the results of a round that was planned as the last. Only bytes can be more:
of a method's models, evaluated once before and once after fine-tuning.
"""

from collections.abc import Callable, Sequence

from fedge.exchange.algorithm import OWN_MODELS
from fedge.exchange.round_context import PERSONAL
from fedge.leaf.leaf import Leaf
from fedge.rounds import lines
from fedge.rounds.evaluation import EvaluationRequest
from fedge.rounds.meeting import Meetings
from fedge.rounds.port import LeafPort
from fedge.rounds.task import RunTask
from fedge.rounds.transport import Transport
from fedge.serving import personal


class LastSteps:
    """The steps of one run, with what its present round has left out.

    Attributes:
        may_follow: whether the present round would have had more steps, had it been planned as the last.
    """

    def __init__(
        self,
        task: RunTask,
        leaves: Sequence[Leaf],
        transport: Transport,
        port: LeafPort,
        train: Callable[[lines.TrainingLine, int], int],
    ) -> None:
        """Keep the constants of the run.

        Args:
            task: of the run.
            leaves: in order.
            transport: has the book of the round.
            port: to leaf servers.
            train: lets a line train for a leaf round, counted through the run.
        """
        self._task, self._config, self._leaves = task, task.config, leaves
        self._transport, self._port, self._train = transport, port, train
        self.may_follow = False
        self._unasked: EvaluationRequest | None = None

    def carry_out(self, global_round: int, num_rounds: int, unasked: EvaluationRequest | None) -> None:
        """Carry out what is due; note the rest.

        Args:
            global_round: 1, 2, …
            num_rounds: the last global round, as far as known.
            unasked: the gates' candidate models, if nobody has evaluated them; None where clients have.
        """
        is_due = personal.is_due(self._config.personal, global_round, num_rounds)
        if is_due:
            self._personalise(global_round)
        if unasked is None:
            self._measure()
        lacks_personal = self._config.personal.leaf_rounds > 0 and not is_due
        self.may_follow = bool(self._config.callbacks) and (unasked is not None or lacks_personal)
        # models may be large: they are kept only where a callback may ask for their evaluation
        self._unasked = unasked if self.may_follow else None

    def carry_out_late(self, root: Meetings) -> None:
        """Carry out what the present round has left out, since it is the last.

        Args:
            root: the cloud's gates have decided already; the clients' evaluations are entered.
        """
        book = self._transport.book
        if self._unasked is not None:
            book.evaluated = self._port.evaluate(self._unasked)
            root.gates.decide_again(root.minutes, book.evaluated)
            self._transport.lap("gate")
        self.carry_out(book.global_round, book.global_round, None)

    def _personalise(self, global_round: int) -> None:
        """Fine-tune every leaf's served model for its known clients, and serve the result if better."""
        rounds = self._config.personal.leaf_rounds
        training = lines.personal(self._leaves)
        for leaf_round in range((global_round - 1) * rounds + 1, global_round * rounds + 1):
            self._train(training, leaf_round)
        models = {fork.index: {PERSONAL: fork.model} for fork in training.leaves}
        unseen_clients = models if self._config.personal.unseen_clients == "same" else {}
        found = self._port.evaluate(EvaluationRequest(models, ("val", "test"), unseen_clients))
        for leaf, fork in zip(self._leaves, training.leaves, strict=True):
            if self._transport.book.note_personal(leaf, found):
                leaf.models.serve_personal(fork.model)
        self._transport.lap("gate")

    def _measure(self) -> None:
        """Evaluate models derived from served models, by clients and on the common test set."""
        self._measure_own_models()
        if self._task.common is not None:
            self._task.common.note(self._leaves, self._transport.book)

    def _measure_own_models(self) -> None:
        """Let clients evaluate their algorithm's models, derived from their served models."""
        leaves = [leaf for leaf in self._leaves if leaf.algorithm is not None and leaf.algorithm.form.models]
        if not leaves:
            return
        models = {leaf.index: {OWN_MODELS: leaf.models.served} for leaf in leaves}
        unseen = {
            leaf.index: {OWN_MODELS: leaf.models.served if leaf.models.unseen is None else leaf.models.unseen}
            for leaf in leaves
            if leaf.algorithm is not None and leaf.algorithm.form.unseen
        }
        found = self._port.evaluate(EvaluationRequest(models, ("test",), unseen))
        self._transport.book.models.clear()  # late, they are others than before fine-tuning
        self._transport.book.note_models(leaves, found)
        self._transport.lap("gate")
