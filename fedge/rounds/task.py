"""Learning task of a run, known before its first round."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fedge.config.config import Config
from fedge.exchange.evaluate import SplitName
from fedge.rounds.measurements.common_test import CommonTest


@dataclass(frozen=True)
class RunTask:
    """Learning task of a run, and facts known beforehand.

    Attributes:
        config: the run's configuration.
        seed: root of the streams for sampling clients.
        held_out: partition id → windows of its "train", "val" and "test" split.
        classes: of the data.
        truth: global round → each leaf's true group, with planted groups.
        own_layers: a leaf's personal entries when taking an offer.
        common: evaluates models on the common test set; None without one.
    """

    config: Config
    seed: int
    held_out: Mapping[int, Mapping[str, int]]
    classes: int
    truth: Callable[[int], Sequence[int]] | None = None
    own_layers: Collection[str] = ()
    common: CommonTest | None = None

    def windows(self, split: SplitName) -> dict[int, int]:
        """Partition id → windows of a split."""
        return {client: held_out[split] for client, held_out in self.held_out.items()}
