"""Measures that compare runs at their end: reader, better direction, bound."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedge.records.reader import RunData
from fedge.report.comparison.targets import BYTES, megabytes
from fedge.report.html.tables import last, total
from fedge.report.sections.spread import leaf_spread

Read = Callable[[RunData], float | None]


@dataclass(frozen=True)
class Metric:
    """One number of a run; None where a run has none.

    Attributes:
        read: gives it.
        better: 1 if more is better, -1 if less is, 0 if neither.
        low, high: bounds of values, and so of their mean.
    """

    read: Read
    better: int = 0
    low: float = -math.inf
    high: float = math.inf

    def __call__(self, run: RunData) -> float | None:
        """The number of a run."""
        return self.read(run)


def score(read: Read) -> Metric:
    """A metric between 0 and 1 of which more is better."""
    return Metric(read, 1, 0.0, 1.0)


def cost(read: Read) -> Metric:
    """A metric of at least 0 of which less is better."""
    return Metric(read, -1, 0.0)


def share(read: Read) -> Metric:
    """A metric between 0 and 1 of which less is better."""
    return Metric(read, -1, 0.0, 1.0)


def _last(column: str) -> Read:
    """Reader of a column in the last round."""
    return lambda run: last(run.rounds, column)


def _over_leaves(column: str) -> Read:
    """Reader of the mean over leaves of a column of leaf_rounds.csv in the last round."""

    def read(run: RunData) -> float | None:
        found = leaf_spread(run, column)
        return found.mean if found else None

    return read


METRICS: dict[str, Metric] = {
    "mean test accuracy": score(_last("test_accuracy_mean")),
    "worst client's test accuracy": score(_last("test_accuracy_worst")),
    "10th percentile of test accuracy": score(_last("test_accuracy_p10")),
    "std of test accuracy over clients": cost(_last("test_accuracy_std")),
    "Jain index of test accuracy": score(_last("test_accuracy_jain")),
    "mean test accuracy over leaves": score(_over_leaves("test_accuracy")),
    "mean macro-F1": score(_last("macro_f1_mean")),
    "mean test loss": cost(_last("test_loss_mean")),
    "seconds of all rounds": cost(lambda run: total(run.rounds, "seconds")),
    "megabytes up and down": cost(lambda run: total(run.rounds, "uplink_bytes", "downlink_bytes") / 1e6),
    "megabytes of leaves and cloud": cost(lambda run: megabytes(run.rounds, BYTES[2:])),
}
# left out where no run has them
OPTIONAL: dict[str, Metric] = {
    "seen users: mean accuracy before fine-tuning": score(_last("shared_accuracy_mean")),
    "seen users: mean accuracy after fine-tuning": score(_last("tuned_accuracy_mean")),
    "unseen users: mean accuracy": score(_last("unseen_accuracy_mean")),
    "unseen users: worst accuracy": score(_last("unseen_accuracy_worst")),
    "unseen users: 10th percentile": score(_last("unseen_accuracy_p10")),
    "unseen users: std over unseen clients": cost(_last("unseen_accuracy_std")),
    "unseen users: Jain index": score(_last("unseen_accuracy_jain")),
    "unseen users: mean over leaves": score(_over_leaves("unseen_accuracy")),
    "unseen users: mean macro-F1": score(_last("unseen_macro_f1_mean")),
    "adjusted Rand index": Metric(_last("ari"), 1, -1.0, 1.0),
    "mean churn": Metric(lambda run: run.rounds["churn"].mean(), 0, 0.0),  # type: ignore[arg-type,return-value]
}
# as many as a summary has room for
HEADLINES = (
    "mean test accuracy",
    "worst client's test accuracy",
    "mean macro-F1",
    "unseen users: mean accuracy",
    "adjusted Rand index",
    "megabytes up and down",
)
