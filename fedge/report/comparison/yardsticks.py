"""Yardsticks among compared runs: local only, global, oracle.

*Local only*: every leaf serves a model of its own clients. *Global*: the cloud averages all leaves into one
model, or there is a single leaf. *Oracle*: the cloud knows the planted groups. A run is a yardstick for
another only if seed, rounds and every client's test windows are the same. A run with fine-tuned served models
is a yardstick only for runs with the same fine-tuning.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from fedge.config.flat import options
from fedge.config.registers.groupings import GROUPINGS
from fedge.config.registers.traits import APART, BY_THRESHOLD_ONLY, PLANTED
from fedge.records.reading.reader import RunData
from fedge.report.comparison.groups import Group, seed_of_run
from fedge.report.html.tables import last
from fedge.tasks.task import Score

Role = Literal["local only", "global", "oracle"]
SMALLEST_GAP = (
    0.01  # between global and oracle, below which there is nothing to recover; relative to the score's
)
# range, or of the oracle's score for an unbounded range


def yardstick_role(group: Group) -> Role | None:
    """Yardstick role of a group's runs, by their options; None for a method under test."""
    run = group.runs[0]
    config = run.config
    if config.get("personal.layers", "none") != "none":
        return None
    if not config.get("cluster.enabled"):
        groups = {group.strip() for group in str(config.get("asynchrony.groups", "")).split(",")}
        return None if config.get("gate.enabled") or len(groups) > 1 else "global"
    method = config.get("cluster.method", GROUPINGS.names[0])
    beyond_all = GROUPINGS.has(method, BY_THRESHOLD_ONLY) and config.get("cluster.tau", 0) > 1
    if beyond_all or GROUPINGS.has(method, APART):
        return "local only" if _groups_leaves(run) else None
    return "oracle" if GROUPINGS.has(method, PLANTED) and not config.get("gate.enabled") else None


def _groups_leaves(run: RunData) -> bool:
    """Whether the servers of all tiers group their children; regions without groups average their leaves."""
    tiers_of_servers = max(run.servers["tier"].to_list(), default=1)
    return len(str(run.config.get("cluster.tiers", "0")).split(",")) >= tiers_of_servers


def is_fine_tuned(run: RunData) -> bool:
    """Whether a run's leaves fine-tune their served models."""
    return bool(run.config.get("personal.leaf-rounds", 0))


@dataclass(frozen=True)
class Yardsticks:
    """Groups of a comparison, for looking up a run's yardsticks."""

    groups: Sequence[Group]

    def run_for(self, run: RunData, role: Role) -> RunData | None:
        """Yardstick of a role for `run`, from the first suitable group; None without one.

        Runs with the same options `personal.…` take precedence. Otherwise only runs without fine-tuning
        qualify, because fine-tuning would add its own gain to the difference of the methods.
        """
        candidates = (
            group.finished.get(seed_of_run(run)) for group in self.groups if yardstick_role(group) == role
        )
        references = [other for other in candidates if other is not None]
        same_options = [other for other in references if _personal_options(other) == _personal_options(run)]
        untuned = [other for other in references if not is_fine_tuned(other)]
        return next((other for other in (*same_options, *untuned) if _has_same_test_data(run, other)), None)

    def worse_off(self, role: Role, unseen_clients: bool) -> Callable[[RunData], float | None]:
        """Function: run → share, 0..1, of its clients with a worse test score than under a yardstick.

        Both scores are those of the served model as the client gets it, fine-tuned or not.

        Args:
            role: role of the yardstick.
            unseen_clients: whether to compare unseen clients in place of known ones.
        """

        def share(run: RunData) -> float | None:
            reference = self.run_for(run, role)
            if reference is None or reference is run:
                return None
            return _share_worse_off(run, reference, unseen_clients)

        return share

    def recovered(self, *columns: str) -> Callable[[RunData], float | None]:
        """Function: run → recovered share of the gap from global to oracle; 1 is the oracle's score.

        None if the oracle is not at least `SMALLEST_GAP` better than the global model with that seed.
        Fine-tuning compensates for much of the gain from clusters and so hides the gap; for fine-tuned runs,
        compare the shared models by ``recovered("shared_accuracy_mean", "test_accuracy_mean")``.

        Args:
            columns: columns of global_rounds.csv, means of the first score; for each run, the first column
                with a value in the last round is used.
        """

        def merit(run: RunData | None) -> float | None:
            values = (None if run is None else last(run.rounds, column) for column in columns)
            score = next((value for value in values if value is not None), None)
            return None if run is None or score is None else run.score.merit(score)

        def share(run: RunData) -> float | None:
            value, low, high = map(merit, (run, self.run_for(run, "global"), self.run_for(run, "oracle")))
            if value is None or low is None or high is None or high - low < _smallest_gap(run.score, high):
                return None
            return float((value - low) / (high - low))

        return share


def _smallest_gap(score: Score, oracle: float) -> float:
    """Gap below which there is nothing to recover; see `SMALLEST_GAP`."""
    width = score.highest - score.lowest
    return SMALLEST_GAP * (width if math.isfinite(width) else abs(oracle))


def _personal_options(run: RunData) -> dict[str, object]:
    """Options ``personal.…`` of a run; missing ones have their defaults."""
    defaults = {key: default for key, (default, _) in options().items() if key.startswith("personal.")}
    return {key: run.config.get(key, default) for key, default in defaults.items()}


def _has_same_test_data(run: RunData, other: RunData) -> bool:
    """Whether both runs score the same clients on the same windows, under the same planted groups."""
    if run is other:
        return True
    data = [
        (r.manifest.get("data", {}).get("fingerprint"), r.config.get("num-server-rounds"), r.score.name)
        for r in (run, other)
    ]
    return data[0] == data[1] and _test_windows(run).equals(_test_windows(other))


def _test_windows(run: RunData) -> pl.DataFrame:
    """Test windows of every client, by user."""
    columns = ("client", "user", "device", "class", "windows", "unseen_client", "group")
    windows = run.partition.filter(pl.col("split") == "test").select(columns)
    return windows.with_columns(pl.col("unseen_client").fill_null(0)).sort(columns)


def _share_worse_off(run: RunData, reference: RunData, unseen_clients: bool) -> float | None:
    """Share of clients, evaluated in the last round of both runs, with a worse score than in `reference`."""
    clients, reference_clients = (
        r.unseen_clients if unseen_clients else r.known_clients for r in (run, reference)
    )
    column = f"test_{run.score.name}"
    scores, reference_scores = (
        _last_round_scores(clients, column),
        _last_round_scores(reference_clients, column),
    )
    pairs = scores.join(reference_scores, on="client", suffix="_reference").drop_nulls()
    lower, higher = (column, f"{column}_reference")[:: 1 if run.score.higher_is_better else -1]
    worse = pairs[lower] < pairs[higher]
    return float(worse.mean()) if len(worse) else None  # type: ignore[arg-type]


def _last_round_scores(clients: pl.DataFrame, column: str) -> pl.DataFrame:
    """Client and score in the last round."""
    rows = clients.filter(pl.col("global_round") == pl.col("global_round").max())
    return rows.select("client", column)
