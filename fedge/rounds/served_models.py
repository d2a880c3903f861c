"""Last steps of a global round: fine-tuning, and evaluations for measurement only.

They run when options say, and always in the last round. If a callback ends the run after a round, that round
gets them late, with the same results as if it had been planned as the last one. Only the bytes may be higher,
because a method's models are evaluated before and after fine-tuning.
"""

from collections.abc import Callable, Sequence

from fedge.exchange.algorithm import OWN_MODELS
from fedge.exchange.round_context import PERSONAL
from fedge.leaf.leaf import Leaf
from fedge.rounds import lines
from fedge.rounds.evaluation import EvaluationRequest
from fedge.rounds.port import LeafPort
from fedge.rounds.server_round import ServerRounds
from fedge.rounds.task import RunTask
from fedge.rounds.transport import Transport
from fedge.serving import personal


class LastSteps:
    """Runs the last steps, and remembers those skipped by the current round.

    Attributes:
        may_follow: whether the current round would have had more steps as the last one.
    """

    def __init__(
        self,
        task: RunTask,
        leaves: Sequence[Leaf],
        transport: Transport,
        port: LeafPort,
        train: Callable[[lines.TrainingLine, int], int],
    ) -> None:
        """Store the constants of the run.

        Args:
            task: task of the run.
            leaves: all leaves, in order.
            transport: holds the record of the round.
            port: connection to leaf servers.
            train: trains a line for a leaf round, counted over the run.
        """
        self._task, self._config, self._leaves = task, task.config, leaves
        self._transport, self._port, self._train = transport, port, train
        self.may_follow = False
        self._skipped_request: EvaluationRequest | None = None

    def carry_out(
        self, global_round: int, num_rounds: int, skipped_request: EvaluationRequest | None
    ) -> None:
        """Run the steps now due, and remember the others.

        Args:
            global_round: 1, 2, …
            num_rounds: the planned last global round.
            skipped_request: the gates' candidate models if clients have not evaluated them, else None.
        """
        is_due = personal.is_due(self._config.personal, global_round, num_rounds)
        if is_due:
            self._personalise(global_round)
        if skipped_request is None:
            self._measure()
        lacks_personal = self._config.personal.leaf_rounds > 0 and not is_due
        self.may_follow = bool(self._config.callbacks) and (skipped_request is not None or lacks_personal)
        # models may be large, so they are kept only if a callback may end the run
        self._skipped_request = skipped_request if self.may_follow else None

    def carry_out_late(self, root: ServerRounds) -> None:
        """Run the steps skipped by the current round, because it is the last one.

        Args:
            root: the cloud, whose gates have decided; evaluations are added to the decisions.
        """
        book = self._transport.book
        if self._skipped_request is not None:
            book.evaluated = self._port.evaluate(self._skipped_request)
            root.gates.decide_again(root.record, book.evaluated)
            self._transport.lap("gate")
        self.carry_out(book.global_round, book.global_round, None)

    def _personalise(self, global_round: int) -> None:
        """Fine-tune every leaf's served model for its known clients, and serve the result if it is better."""
        rounds = self._config.personal.leaf_rounds
        training = lines.personal_line(self._leaves)
        for leaf_round in range((global_round - 1) * rounds + 1, global_round * rounds + 1):
            self._train(training, leaf_round)
        models = {fork.index: {PERSONAL: fork.model} for fork in training.leaves}
        unseen_clients = models if self._config.personal.unseen_clients == "same" else {}
        evaluated = self._port.evaluate(EvaluationRequest(models, ("val", "test"), unseen_clients))
        for leaf, fork in zip(self._leaves, training.leaves, strict=True):
            if self._transport.book.note_personal(leaf, evaluated):
                leaf.models.serve_personal(fork.model)
        self._transport.lap("gate")

    def _measure(self) -> None:
        """Evaluate models derived from the served models, by clients and on the common test set."""
        self._measure_own_models()
        if self._task.common is not None:
            self._task.common.note(self._leaves, self._transport.book)

    def _measure_own_models(self) -> None:
        """Let clients evaluate their algorithm's models, which derive from their served models."""
        leaves = [leaf for leaf in self._leaves if leaf.algorithm is not None and leaf.algorithm.form.models]
        if not leaves:
            return
        models = {leaf.index: {OWN_MODELS: leaf.models.served} for leaf in leaves}
        unseen = {
            leaf.index: {OWN_MODELS: leaf.models.served if leaf.models.unseen is None else leaf.models.unseen}
            for leaf in leaves
            if leaf.algorithm is not None and leaf.algorithm.form.unseen
        }
        evaluated = self._port.evaluate(EvaluationRequest(models, ("test",), unseen))
        self._transport.book.models.clear()  # if late, they differ from those before fine-tuning
        self._transport.book.note_models(leaves, evaluated)
        self._transport.lap("gate")
