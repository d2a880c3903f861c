"""Metrics for comparing runs at their end: functions to read them, directions, bounds.

They are named by the scores of the runs' task, the first of which is the main one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from fedge.records.reading.costs import BYTES
from fedge.records.reading.reader import RunData
from fedge.report.comparison.targets import megabytes
from fedge.report.html.tables import last, total
from fedge.report.sections.spread import leaf_spread
from fedge.tasks.task import Score

Read = Callable[[RunData], float | None]
_MEGABYTES, _RAND = "megabytes up and down", "adjusted Rand index"
COMMON_TEST, OWN_MODELS = "common test set", "clients' own models"


@dataclass(frozen=True)
class Metric:
    """One number of a run; None if a run has none.

    Attributes:
        read: function to read it from a run.
        better: 1 if more is better, -1 if less is, 0 if neither.
        low, high: bounds of values, and so of their mean.
        always: whether it has a row even if no run has a value.
        headline: its position in a summary, from 1; 0 if not included.
    """

    read: Read
    better: int = 0
    low: float = -math.inf
    high: float = math.inf
    always: bool = False
    headline: int = 0

    def __call__(self, run: RunData) -> float | None:
        """The number of a run."""
        return self.read(run)


def of_score(score: Score, read: Read) -> Metric:
    """Metric with the range and direction of a task's score."""
    return Metric(read, 1 if score.higher_is_better else -1, score.lowest, score.highest)


def evenness(read: Read) -> Metric:
    """Metric between 0 and 1; more is better."""
    return Metric(read, 1, 0.0, 1.0)


def cost(read: Read) -> Metric:
    """Metric of at least 0; less is better."""
    return Metric(read, -1, 0.0)


def share_metric(read: Read) -> Metric:
    """Metric between 0 and 1; less is better."""
    return Metric(read, -1, 0.0, 1.0)


def _last_value(column: str) -> Read:
    """Reader of a column in the last round."""
    return lambda run: last(run.rounds, column)


def _on_common_test(model: str) -> Read:
    """Reader of the newest mean, over models of a kind, of the first score on the common test set."""

    def read(run: RunData) -> float | None:
        rows = run.common_test.filter(pl.col("model") == model)
        if rows.is_empty():
            return None
        newest = rows.filter(pl.col("global_round") == rows["global_round"].max())
        return newest["test_score"].mean()  # type: ignore[return-value]

    return read


def own_model_metrics(score: Score, runs: Sequence[RunData]) -> dict[str, Metric]:
    """Metrics of the models kept by clients for themselves (`train.algorithm`), on their own test windows.

    Args:
        score: the task's first score.
        runs: all compared runs. If one has several such models, each name has its own metrics;
            otherwise the names of different algorithms do not matter.
    """
    names_per_run = [run.client_models["model"].unique() for run in runs]
    if all(names.is_empty() for names in names_per_run):
        return {}
    have_several = any(len(names) > 1 for names in names_per_run)
    worst = pl.Series.min if score.higher_is_better else pl.Series.max
    metrics = {}
    for name in pl.concat(names_per_run).unique().sort() if have_several else [""]:
        prefix = f"{OWN_MODELS} ({name})" if name else OWN_MODELS
        metrics[f"{prefix}: mean test {score.label}"] = of_score(
            score, _own_model_score(name, pl.Series.mean)
        )
        metrics[f"{prefix}: worst test {score.label}"] = of_score(score, _own_model_score(name, worst))
    return metrics


def _own_model_score(name: str, over_clients: Callable[[pl.Series], Any]) -> Read:
    """Reader of the newest first score of training clients' own models; if `name` is empty, of any name.

    A cell without a number, e.g. in a damaged file, counts as a missing client.
    """

    def read(run: RunData) -> float | None:
        rows = run.client_models.filter(pl.col("unseen_client") == 0).drop_nulls("test_score")
        rows = rows.filter(pl.col("model") == name) if name else rows
        if rows.is_empty():
            return None
        newest = rows.filter(pl.col("global_round") == rows["global_round"].max())
        return float(over_clients(newest["test_score"]))

    return read


def _mean_over_leaves(column: str) -> Read:
    """Reader of the mean over leaves of a column of leaf_rounds.csv in the last round."""

    def read(run: RunData) -> float | None:
        spread = leaf_spread(run, column) if column in run.leaves.columns else None
        return spread.mean if spread else None

    return read


def comparison_metrics(scores: Sequence[Score], least_loss: float = 0.0) -> dict[str, Metric]:
    """Metrics of compared runs by name, from the scores of their task.

    Args:
        scores: the task's scores; the first is the main one.
        least_loss: lower bound of the loss.
    """
    metrics = {**_required_metrics(scores, least_loss), **_optional_metrics(scores)}
    summary = (
        f"mean test {scores[0].label}",
        f"worst client's test {scores[0].label}",
        validation_metric(scores[0]),
        *(f"mean {score.label}" for score in scores[1:2]),
        f"unseen users: mean {scores[0].label}",
        _RAND,
        _MEGABYTES,
    )
    return metrics | {
        name: replace(metrics[name], headline=rank) for rank, name in enumerate(summary, start=1)
    }


def validation_metric(score: Score) -> str:
    """Name of the metric for selecting a setting: the validation score of served models."""
    return f"mean validation {score.label}"


def _required_metrics(scores: Sequence[Score], least_loss: float) -> dict[str, Metric]:
    """Metrics of every comparison."""
    first, *further = scores
    label, test = first.label, f"test_{first.name}"
    metrics = {
        f"mean test {label}": of_score(first, _last_value(f"{test}_mean")),
        f"worst client's test {label}": of_score(first, _last_value(f"{test}_worst")),
        f"{first.tail_label} of test {label}": of_score(first, _last_value(f"{test}_p10")),
        f"std of test {label} over clients": cost(_last_value(f"{test}_std")),
        f"Jain index of test {label}": evenness(_last_value(f"{test}_jain")),
        f"mean test {label} over leaves": of_score(first, _mean_over_leaves(test)),
        **{f"mean {score.label}": of_score(score, _last_value(f"{score.name}_mean")) for score in further},
        "mean test loss": Metric(_last_value("test_loss_mean"), -1, least_loss),
        "seconds of all rounds": cost(lambda run: total(run.rounds, "seconds")),
        _MEGABYTES: cost(lambda run: total(run.rounds, "uplink_bytes", "downlink_bytes") / 1e6),
        "megabytes of leaves and cloud": cost(lambda run: megabytes(run.rounds, BYTES[2:])),
    }
    return {name: replace(metric, always=True) for name, metric in metrics.items()}


def _optional_metrics(scores: Sequence[Score]) -> dict[str, Metric]:
    """Metrics omitted if no run has them."""
    first, *further = scores
    label, name = first.label, first.name
    unseen = f"unseen_{name}"
    return {
        validation_metric(first): of_score(first, _last_value(f"val_{first.name}_mean")),
        f"seen users: mean {label} before fine-tuning": of_score(first, _last_value(f"shared_{name}_mean")),
        f"seen users: mean {label} after fine-tuning": of_score(first, _last_value(f"tuned_{name}_mean")),
        f"unseen users: mean {label}": of_score(first, _last_value(f"{unseen}_mean")),
        f"unseen users: worst {label}": of_score(first, _last_value(f"{unseen}_worst")),
        f"unseen users: {first.tail_label}": of_score(first, _last_value(f"{unseen}_p10")),
        "unseen users: std over unseen clients": cost(_last_value(f"{unseen}_std")),
        "unseen users: Jain index": evenness(_last_value(f"{unseen}_jain")),
        "unseen users: mean over leaves": of_score(first, _mean_over_leaves(unseen)),
        **{
            f"unseen users: mean {score.label}": of_score(score, _last_value(f"unseen_{score.name}_mean"))
            for score in further
        },
        f"{COMMON_TEST}: {label} of the global mean": of_score(first, _on_common_test("global")),
        f"{COMMON_TEST}: mean {label} over leaves": of_score(first, _on_common_test("leaf")),
        _RAND: Metric(_last_value("ari"), 1, -1.0, 1.0),
        "mean churn": Metric(_churn, 0, 0.0),
    }


def _churn(run: RunData) -> float | None:
    """Mean over rounds of the share of leaves changing their cluster."""
    return run.rounds["churn"].mean()  # type: ignore[return-value]
