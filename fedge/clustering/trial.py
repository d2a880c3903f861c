"""Would other groups serve strangers better? A proposed grouping against the one in force.

In the round before a decision every leaf trains twice: its own line, and beside it a fork that began, like
all leaves of its proposed cluster, with that cluster's mean. Then, for the clients of leaf j, the mean model
of j's cluster *without j* is a model of strangers, as it is for an unseen client; each client evaluates two
on its validation windows: the mean of the forks in j's proposed cluster, and of the models in its present
one. The proposal is useful if losses fall:

    gain = mean over clients of log(loss, present) − log(loss, proposed)

Splitting takes training data from a model and spares it contradictions; which weighs more is measured here,
not assumed. It takes a round of training to see: leaves that have just left a model which serves nobody well
are all still close to it. Shape letters: S leaf servers, K clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedge.clustering.evidence import Answers
from fedge.states.averaging import State, weighted_mean

PROPOSED, PRESENT = "trial-proposed", "trial-present"  # roles
_SMALLEST_LOSS = 1e-12  # of which a logarithm is taken


@dataclass(frozen=True)
class Gain:
    """Result of a trial.

    Attributes:
        gain: by how much the log loss falls, over all clients that evaluated both; 0.1 is about 10 %.
        better: share of the clients for whom it falls.
        clients: how many evaluated both.
    """

    gain: float
    better: float
    clients: int


def questions(
    proposed: np.ndarray,
    present: np.ndarray,
    forks: Sequence[State | None],
    models: Sequence[State],
    weights: Sequence[float],
) -> list[dict[str, State]]:
    """Per leaf the two models that its clients are to compare; none for those that it leaves alone.

    A leaf whose cluster stays as it is has nothing to compare, nor has one that is alone, now or then.

    Args:
        proposed, present: (S,) labels.
        forks: per leaf its fork, trained from the proposed cluster's mean; None for a leaf alone.
        models: per leaf its model.
        weights: per leaf its number of training windows.
    """
    means: dict[tuple[bool, tuple[int, ...]], State] = {}

    def mean(members: tuple[int, ...], of_forks: bool) -> State:
        key = (of_forks, members)
        if key not in means:
            trained = [forks[m] if of_forks else models[m] for m in members]
            known = [model for model in trained if model is not None]
            means[key] = weighted_mean(known, [weights[m] for m in members])
        return means[key]

    asked: list[dict[str, State]] = []
    for leaf in range(len(models)):
        new, old = others(proposed, leaf), others(present, leaf)
        compare = new and old and new != old
        asked.append({PROPOSED: mean(new, True), PRESENT: mean(old, False)} if compare else {})
    return asked


def others(labels: np.ndarray, leaf: int) -> tuple[int, ...]:
    """The other leaves in a leaf's cluster; `labels` is (S,) int64."""
    return tuple(int(other) for other in np.flatnonzero(labels == labels[leaf]) if other != leaf)


def gain_of(answers: Answers) -> Gain | None:
    """Gain in the clients' answers, or None if none of them evaluated both models."""
    if PROPOSED not in answers.losses or PRESENT not in answers.losses:
        return None
    both = [np.log(np.maximum(answers.losses[role], _SMALLEST_LOSS)) for role in (PRESENT, PROPOSED)]
    falls = both[0] - both[1]
    falls = falls[np.isfinite(falls)]
    if not falls.size:
        return None
    return Gain(float(falls.mean()), float((falls > 0).mean()), int(falls.size))
