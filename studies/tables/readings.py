"""Numbers of papers' tables, read out of runs; shares are 0..1, None where a run has no such number.

A reading is named, some with an argument: "best-common", "seconds-to:0.85".
"""

import math
from collections.abc import Callable, Mapping

import polars as pl

from fedge.records.reading.reader import RunData
from studies.measures import Read, last

TRUE_OR_FALSE = frozenset({"collapsed"})
BELOW = 0.2  # twice chance of ten classes: a model of less has collapsed


def reading(name: str) -> Read:
    """The reading of a name.

    Raises:
        ValueError: it is unknown, or lacks its argument.
    """
    word, _, argument = name.partition(":")
    if argument and word in _TO_TARGET:
        read = _TO_TARGET[word]
        return lambda run: read(run, float(argument))
    if argument or word not in READINGS:
        known = ", ".join([*READINGS, *(f"{kind}:TARGET" for kind in _TO_TARGET)])
        raise ValueError(f"a measure must be one of {known}, but is {name!r}")
    return READINGS[word]


def common(run: RunData, model: str = "global") -> pl.DataFrame:
    """Rows of the common test set: the mean of all leaves, or all leaves."""
    return run.common_test.filter(pl.col("model") == model)


def best_common(run: RunData) -> float | None:
    """The best accuracy over rounds on the common test set."""
    return _as_float(common(run)["test_score"].max())


def last_common(run: RunData) -> float | None:
    """The accuracy on the common test set after the last round."""
    rows = common(run)
    return _as_float(rows["test_score"][-1]) if len(rows) else None


def mean_common(run: RunData) -> float | None:
    """The mean over rounds: how high a curve lies."""
    return _as_float(common(run)["test_score"].mean())


def leaves_common(run: RunData) -> float | None:
    """The mean over leaves of the accuracy of each leaf's model on the common test set."""
    rows = common(run, "leaf")
    ends = rows.filter(pl.col("global_round") == rows["global_round"].max())
    return _as_float(ends["test_score"].mean()) if len(ends) else None


def leaves_own(run: RunData) -> float | None:
    """The mean over leaves of the accuracy of clients' own models; of those served where there are none."""
    models = run.client_models
    if not len(models):
        return last("leaf_accuracy_mean")(run)
    ends = models.filter(
        (pl.col("global_round") == models["global_round"].max()) & (pl.col("unseen_client") == 0)
    )
    right = pl.col("test_score") * pl.col("test_samples")
    leaf_scores = ends.group_by("leaf").agg((right.sum() / pl.col("test_samples").sum()).alias("score"))
    return _as_float(leaf_scores["score"].mean())


def collapsed(run: RunData) -> float | None:
    """1 for a run ending below twice chance of ten classes, or with an infinite or NaN loss, else 0."""
    if diverged(run):
        return 1.0
    rows = common(run)
    if not len(rows):
        return None
    score, loss = rows["test_score"][-1], rows["test_loss"][-1]
    is_finite = loss is not None and math.isfinite(loss)
    return float(score < BELOW or not is_finite)


_OUT_OF_BOUNDS = ("FloatingPointError", "rejected: too large", "rejected: not finite")  # of a last reply


def diverged(run: RunData) -> bool:
    """Whether a run ended early because no client's training stayed finite, or small enough to average."""
    return run.status == "failed" and any(
        words in str(run.manifest.get("reason", "")) for words in _OUT_OF_BOUNDS
    )


def rounds_to(run: RunData, target: float) -> float | None:
    """The first global round after which the common test set's accuracy is at a target."""
    rounds = common(run).filter(pl.col("test_score") >= target)["global_round"]
    return float(rounds[0]) if len(rounds) else None


def seconds_to(run: RunData, target: float) -> float | None:
    """Virtual seconds until then."""
    return _value_at(run, "virtual_s", rounds_to(run, target))


def joules_to(run: RunData, target: float) -> float | None:
    """Joules spent by a device until the target, mean over devices."""
    joules = _value_at(run, "joules", rounds_to(run, target))
    return None if joules is None else joules / sum(run.manifest["clients_per_leaf"])


def _value_at(run: RunData, column: str, global_round: float | None) -> float | None:
    if global_round is None:
        return None
    return _as_float(run.rounds.filter(pl.col("global_round") == int(global_round))[column][0])


def _as_float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


READINGS: Mapping[str, Read] = {
    "best-common": best_common,
    "last-common": last_common,
    "mean-common": mean_common,
    "leaves-common": leaves_common,
    "leaves-own": leaves_own,
    "collapsed": collapsed,
    "leaves": last("leaf_accuracy_mean"),
    "served": last("test_accuracy_mean"),
    "worst-leaf": last("leaf_accuracy_worst"),
    "unseen": last("unseen_accuracy_mean"),
    "before-tuning": last("shared_accuracy_mean"),
    "tuned": last("tuned_accuracy_mean"),
    "ari": last("ari"),
    "clusters": last("num_clusters"),
}
_TO_TARGET: Mapping[str, Callable[[RunData, float], float | None]] = {
    "rounds-to": rounds_to,
    "seconds-to": seconds_to,
    "joules-to": joules_to,
}
