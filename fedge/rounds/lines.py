"""Lines trained in one exchange: the leaves themselves, or forks of some beside them.

    leaf       every leaf's model
    own line   the model of a leaf that took an offer tentatively, as trained without it
    trial      the model of the cluster that is proposed for a leaf; where that is the leaf alone, its folds,
               one after the other (`fedge.leaf.folds`)
    personal   a fine-tuned copy of a leaf's served model, for the clients that it knows

Of forks nothing comes back but their models. A probe is no line: one model trained for all leaves, for
comparison only (`fedge.rounds.training`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedge.exchange.round_context import LEAF, OWN_LINE, PERSONAL, TRIAL, Line
from fedge.leaf.folds import MOST_LINES, held_out_clients
from fedge.leaf.leaf import Leaf

_BESIDE: Sequence[Line] = (OWN_LINE, TRIAL)


@dataclass(frozen=True)
class TrainingLine:
    """One line at all its leaves.

    Attributes:
        line: kind of line.
        leaves: with the line, or their forks, in order.
        fold: which one trains; None for no fold.
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


def beside(leaves: Sequence[Leaf]) -> Iterator[TrainingLine]:
    """Yield the lines beside the leaves' models; each is made when due.

    After a line has trained, its caller calls `hand_back`.
    """
    for line in _BESIDE:
        models = [(leaf, leaf.models.training(line)) for leaf in leaves]
        forks = [leaf.fork(model, scaffold=True) for leaf, model in models if model is not None]
        if forks:
            yield TrainingLine(line, forks)
    for fold in range(MOST_LINES):
        forks = [_fold(leaf, fold) for leaf in leaves if fold < len(leaf.models.folds)]
        if forks:
            yield TrainingLine(TRIAL, forks, fold)


def any_beside(leaves: Sequence[Leaf]) -> bool:
    """Whether anything trains beside the leaves' models, without making the lines."""
    return any(
        leaf.models.folds or any(leaf.models.training(line) is not None for line in _BESIDE)
        for leaf in leaves
    )


def _fold(leaf: Leaf, fold: int) -> Leaf:
    """A fork of a leaf, trained by all of its clients but some."""
    folds = leaf.models.folds
    return leaf.fork(folds[fold], scaffold=True, without=held_out_clients(leaf.clients, fold, len(folds)))


def hand_back(training: TrainingLine, leaves: Sequence[Leaf]) -> None:
    """Give the models of forks to their leaves.

    Args:
        training: of `beside`.
        leaves: all, in order.
    """
    for fork in training.leaves:
        models = leaves[fork.index].models
        if training.fold is None:
            models.trained(training.line, fork.model)
        else:
            models.fold_trained(training.fold, fork.model)


def personal(leaves: Sequence[Leaf]) -> TrainingLine:
    """The line for fine-tuning every leaf's served model, without control variates."""
    forks = [leaf.fork(leaf.models.served, scaffold=False) for leaf in leaves]
    return TrainingLine(PERSONAL, forks)
