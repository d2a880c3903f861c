"""A run's configuration, data sizes and other facts known before its first round."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fedge.config.config import Config
from fedge.exchange.evaluate import SplitName
from fedge.rounds.measurements.common_test import CommonTest


@dataclass(frozen=True)
class RunTask:
    """Facts of a run known before its first round.

    Attributes:
        config: the run's configuration.
        seed: seed for sampling clients.
        held_out: partition id → number of windows in its "train", "val" and "test" splits.
        classes: class names of the data.
        truth: global round → each leaf's true group, if groups are planted.
        own_layers: entries kept by a leaf when it takes an offer.
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
        """Partition id → number of windows of a split."""
        return {client: held_out[split] for client, held_out in self.held_out.items()}
