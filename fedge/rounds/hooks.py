"""Hooks during a global round; by default nobody listens."""

from collections.abc import Mapping


class Hooks:
    """Receives events from the server's one thread, in the same order on every engine."""

    @property
    def is_ending(self) -> bool:
        """Whether the run ends after the present global round, although others were planned."""
        return False

    def begin_round(self, global_round: int) -> None:
        """Hook at the start of a global round."""

    def begin_leaf_round(self, global_round: int, leaf_round: int) -> None:
        """Hook before the training of all leaves' clients; `leaf_round` is counted through the run."""

    def end_leaf_round(
        self,
        global_round: int,
        leaf_round: int,
        replies: int,
        train_loss: Mapping[int, float],
        failures: Mapping[int, object],
    ) -> None:
        """Handle the end of a leaf round, once all leaves have combined their replies.

        Args:
            global_round: 1, 2, …
            leaf_round: counted through the run.
            replies: accepted.
            train_loss: client → mean loss of its training.
            failures: client → its first failure in this global round.
        """
