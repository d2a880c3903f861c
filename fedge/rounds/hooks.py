"""Hooks during a global round, empty by default."""

from collections.abc import Mapping


class Hooks:
    """Receives events in the server's main thread, in the same order on every engine."""

    @property
    def is_ending(self) -> bool:
        """Whether the run should end after the current global round, before its planned end."""
        return False

    def begin_round(self, global_round: int) -> None:
        """Hook at the start of a global round."""

    def begin_leaf_round(self, global_round: int, leaf_round: int) -> None:
        """Hook before clients train in a leaf round; `leaf_round` is counted over the run."""

    def end_leaf_round(
        self,
        global_round: int,
        leaf_round: int,
        replies: int,
        train_loss: Mapping[int, float],
        failures: Mapping[int, object],
    ) -> None:
        """Hook after a leaf round, once all leaves have combined their replies.

        Args:
            global_round: 1, 2, …
            leaf_round: counted over the run.
            replies: number of accepted replies.
            train_loss: client → mean training loss.
            failures: client → its first failure in this global round.
        """
