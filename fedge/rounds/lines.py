"""Lines: the models trained by leaves in a leaf round, each line in one exchange.

    leaf       every leaf's own model
    own line   for a leaf that took an offer tentatively, its previous model, trained without the offer
    trial      the model of the cluster proposed for a leaf; if that is the leaf on its own, its folds, one
               after the other (`fedge.leaf.folds`)
    personal   a fine-tuned copy of a leaf's served model, for its known clients

All but the first are trained on forks, of which only the models are kept. A probe is not a line: all leaves
train one model, only for comparison (`fedge.rounds.training`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedge.exchange.round_context import LEAF, OWN_LINE, PERSONAL, TRIAL, Line
from fedge.leaf.folds import MOST_LINES, held_out_clients
from fedge.leaf.leaf import Leaf

_SIDE_LINES: Sequence[Line] = (OWN_LINE, TRIAL)


@dataclass(frozen=True)
class TrainingLine:
    """One line at all of its leaves.

    Attributes:
        line: kind of line.
        leaves: leaves with the line, or their forks, in order.
        fold: index of the training fold; None if the line is no fold.
    """

    line: Line
    leaves: Sequence[Leaf]
    fold: int | None = None

    @cached_property
    def by_index(self) -> dict[int, Leaf]:
        """Index → the leaf, or its fork."""
        return {leaf.index: leaf for leaf in self.leaves}


def own_models(leaves: Sequence[Leaf]) -> TrainingLine:
    """The line of the leaves' own models."""
    return TrainingLine(LEAF, leaves)


def extra_lines(leaves: Sequence[Leaf]) -> Iterator[TrainingLine]:
    """Yield the lines beside the leaves' own models, each created when it is due.

    The caller must call `assign_fork_models` after a line has trained.
    """
    for line in _SIDE_LINES:
        models = [(leaf, leaf.models.training(line)) for leaf in leaves]
        forks = [leaf.fork(model, scaffold=True) for leaf, model in models if model is not None]
        if forks:
            yield TrainingLine(line, forks)
    for fold in range(MOST_LINES):
        forks = [_fork_for_fold(leaf, fold) for leaf in leaves if fold < len(leaf.models.folds)]
        if forks:
            yield TrainingLine(TRIAL, forks, fold)


def has_extra_lines(leaves: Sequence[Leaf]) -> bool:
    """Whether there are lines beside the leaves' own models, without creating them."""
    return any(
        leaf.models.folds or any(leaf.models.training(line) is not None for line in _SIDE_LINES)
        for leaf in leaves
    )


def _fork_for_fold(leaf: Leaf, fold: int) -> Leaf:
    """A fork of a leaf, trained without some of its clients."""
    folds = leaf.models.folds
    return leaf.fork(folds[fold], scaffold=True, without=held_out_clients(leaf.clients, fold, len(folds)))


def assign_fork_models(training: TrainingLine, leaves: Sequence[Leaf]) -> None:
    """Give the models of trained forks to their leaves.

    Args:
        training: a line from `extra_lines`.
        leaves: all leaves, in order.
    """
    for fork in training.leaves:
        models = leaves[fork.index].models
        if training.fold is None:
            models.trained(training.line, fork.model)
        else:
            models.fold_trained(training.fold, fork.model)


def personal_line(leaves: Sequence[Leaf]) -> TrainingLine:
    """The line for fine-tuning every leaf's served model, without control variates."""
    forks = [leaf.fork(leaf.models.served, scaffold=False) for leaf in leaves]
    return TrainingLine(PERSONAL, forks)
