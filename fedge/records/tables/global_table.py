"""Table of global rounds, one row per round; see `catalog`."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from fedge.metrics.agreement import Agreement, agreement
from fedge.metrics.scores import Spread
from fedge.records.tables.columns import FLOAT, INT, ROUND, TEXT, Column, Table, at
from fedge.records.tables.score_words import TEST_LOSS, VAL_LOSS, ScoreWords, further_score_meaning

if TYPE_CHECKING:
    from fedge.rounds.measurements.results import RoundResult


class GlobalRow:
    """Source of a row of global_rounds.csv; each spread is computed only once."""

    def __init__(self, result: "RoundResult", seconds: float) -> None:
        """Row of a round that took `seconds` seconds."""
        self.result = result
        self.seconds = seconds
        self._spreads: dict[tuple[str, bool], Spread | None] = {}

    def spread(self, name: str, unseen: bool) -> Spread | None:
        """Spread of a number over known or unseen clients; None without any value."""
        key = (name, unseen)
        if key not in self._spreads:
            self._spreads[key] = self.result.over_clients(name, unseen)
        return self._spreads[key]

    @cached_property
    def agreement(self) -> Agreement | None:
        """Agreement of the clusters with the planted groups; None without planted groups."""
        truth = self.result.truth
        return None if truth is None else agreement(truth, self.result.labels)

    @cached_property
    def over_leaves(self) -> Spread | None:
        """Spread of the first score over leaves; None without any."""
        return self.result.over_leaves("test_score")

    def decided(self, decision: str) -> int:
        """Number of gates with this decision."""
        return sum(leaf.gate.decision == decision for leaf in self.result.leaves)


_STATISTICS = {
    "mean": "mean", "std": "std", "worst": "smallest", "p10": "10th percentile",
    "jain": "Jain's index",
}  # fmt: skip


_REVERSED_STATISTICS = {"worst": "largest", "p10": "90th percentile"}  # for scores of which less is better


def _describe_statistic(statistic: str, higher_is_better: bool) -> str:
    """Meaning of a statistic, in words."""
    meanings = _STATISTICS if higher_is_better else _STATISTICS | _REVERSED_STATISTICS
    return meanings[statistic]


def _less_is_better(statistic: str, higher_is_better: bool) -> bool:
    """Whether a smaller statistic is better: less spread, a larger Jain's index, otherwise as the number."""
    return statistic == "std" or (statistic != "jain" and not higher_is_better)


def _client_statistic_column(
    column: str,
    statistic: str,
    measure: str,
    subject: str,
    unit: str = "share",
    unseen: bool = False,
    always: bool = True,
    higher_is_better: bool = True,
) -> Column:
    """Column of a statistic over clients, each with equal weight."""

    def value(row: GlobalRow) -> float | None:
        spread = row.spread(measure, unseen)
        return None if spread is None else float(getattr(spread, statistic))

    clients = " of unseen clients" if unseen else ""
    meaning = f"{subject}{clients}: {_describe_statistic(statistic, higher_is_better)}"
    less = _less_is_better(statistic, higher_is_better)
    unit = "" if statistic == "jain" else unit
    return Column(f"{column}_{statistic}", FLOAT, unit, meaning, value, always, less)


def _leaf_statistic_column(w: ScoreWords, statistic: str) -> Column:
    """Column of a statistic over leaves, each with equal weight."""

    def value(row: GlobalRow) -> float | None:
        spread = row.over_leaves
        return None if spread is None else float(getattr(spread, statistic))

    unit = "" if statistic == "jain" else w.unit
    meaning = f"{w.test} of leaves: {_describe_statistic(statistic, w.higher_is_better)}"
    less = _less_is_better(statistic, w.higher_is_better)
    return Column(
        f"leaf_{w.name}_{statistic}", FLOAT, unit, meaning, value, always=False, less_is_better=less
    )


def _score_columns(
    w: ScoreWords, prefix: str, statistics: Sequence[str], subject: str, **options: bool
) -> list[Column]:
    """Columns ``{prefix}_{score}_{statistic}`` over clients."""
    return [
        _client_statistic_column(
            f"{prefix}_{w.name}",
            statistic,
            f"{'test' if prefix == 'unseen' else prefix}_score",
            subject,
            w.unit,
            higher_is_better=w.higher_is_better,
            **options,
        )
        for statistic in statistics
    ]


def _loss_column(column: str, measure: str, subject: str, unit: str, **options: bool) -> Column:
    """Column of a mean loss over clients."""
    return _client_statistic_column(column, "mean", measure, subject, unit, higher_is_better=False, **options)


def _further_score_columns(w: ScoreWords, prefix: str = "", **options: bool) -> list[Column]:
    """Means of all scores but the first over clients."""
    return [
        _client_statistic_column(
            prefix + score.name,
            "mean",
            score.name,
            further_score_meaning(score),
            score.unit,
            higher_is_better=score.higher_is_better,
            **options,
        )
        for score in w.further
    ]


def _test_columns(w: ScoreWords) -> list[Column]:
    """Test scores of known clients, and their training loss."""
    return [
        *_score_columns(w, "test", ("mean", "std", "worst"), w.test),
        _loss_column("test_loss", "test_loss", TEST_LOSS, w.nat),
        *_further_score_columns(w),
        Column(
            "train_loss_mean",
            FLOAT,
            w.nat,
            "training loss, weighted by training windows",
            at("result.train_loss"),
            less_is_better=True,
        ),
    ]


def _cluster_columns() -> list[Column]:
    """Clusters of leaves, and leaves' decisions on their offers."""
    return [
        Column("num_clusters", INT, "", "clusters after the round", lambda r: len(set(r.result.labels))),
        Column(
            "cluster_labels",
            TEXT,
            "",
            "cluster of each leaf, separated by spaces",
            lambda r: " ".join(map(str, r.result.labels)),
        ),
        Column("gate_accepted", INT, "leaves", "leaves: offer taken", lambda r: r.decided("accepted")),
        Column("gate_rejected", INT, "leaves", "leaves: own model kept", lambda r: r.decided("rejected")),
    ]


def _participation_columns() -> list[Column]:
    """Participating clients, their bytes, the time and the failures."""
    return [
        Column("clients_ok", INT, "clients", "clients: without a failed exchange", at("result.clients_ok")),
        Column(
            "clients_failed",
            INT,
            "clients",
            "clients: with one",
            lambda r: len(r.result.failures),
            less_is_better=True,
        ),
        Column(
            "uplink_bytes",
            INT,
            "bytes",
            "arrays: from clients to leaves",
            at("result.uplink_bytes"),
            less_is_better=True,
        ),
        Column(
            "downlink_bytes",
            INT,
            "bytes",
            "arrays: from leaves to clients",
            at("result.downlink_bytes"),
            less_is_better=True,
        ),
        Column("seconds", FLOAT, "s", "wall time", at("seconds"), less_is_better=True),
        Column(
            "failures",
            TEXT,
            "clients",
            'kinds and numbers of failures, as "exception 1; rejected 2"',
            lambda r: "; ".join(f"{kind} {count}" for kind, count in r.result.failure_kinds.items()),
            always=False,
        ),
    ]


def _unseen_client_columns(w: ScoreWords) -> list[Column]:
    """Test scores of unseen clients."""
    return [
        *_score_columns(w, "unseen", ("mean", "std", "worst", "p10", "jain"), w.test, unseen=True),
        _loss_column("unseen_loss", "test_loss", TEST_LOSS, w.nat, unseen=True),
        *_further_score_columns(w, "unseen_", unseen=True),
    ]


def _cloud_columns() -> list[Column]:
    """Bytes between leaves and the cloud, and changes of its clusters."""
    return [
        Column(
            "cloud_uplink_bytes",
            INT,
            "bytes",
            "arrays: from leaves to the cloud",
            at("result.cloud_uplink_bytes"),
            less_is_better=True,
        ),
        Column(
            "cloud_downlink_bytes",
            INT,
            "bytes",
            "arrays: from the cloud to leaves",
            at("result.cloud_downlink_bytes"),
            less_is_better=True,
        ),
        Column(
            "churn",
            FLOAT,
            "share",
            "share of leaf pairs joined or separated by a cloud step; empty for the first",
            at("result.churn"),
            less_is_better=True,
        ),
    ]


def _agreement_columns() -> list[Column]:
    """Agreement of clusters with the planted groups of a scenario."""
    measures = (
        ("ari", "adjusted Rand index"),
        ("nmi", "normalised mutual information"),
        ("homogeneity", "homogeneity"),
        ("completeness", "completeness"),
    )
    return [
        Column(
            name,
            FLOAT,
            "",
            f"agreement of clusters with planted groups: {words}",
            at(f"agreement.{name}"),
        )
        for name, words in measures
    ]


def _privacy_column() -> Column:
    """Privacy spent by clients."""
    return Column(
        "epsilon_spent",
        FLOAT,
        "",
        "ε spent by clients so far at privacy.delta; empty without privacy or dp-accounting",
        at("result.epsilon_spent"),
        always=False,
        less_is_better=True,
        is_total=True,
    )


def _device_columns() -> list[Column]:
    """Virtual time and energy of clients as devices."""
    return [
        Column(
            "virtual_s",
            FLOAT,
            "virtual s",
            "virtual time of devices so far",
            at("result.virtual_s"),
            always=False,
            less_is_better=True,
            is_total=True,
        ),
        Column(
            "joules",
            FLOAT,
            "J",
            "energy spent by devices so far",
            at("result.joules"),
            always=False,
            less_is_better=True,
            is_total=True,
        ),
    ]


def global_table(w: ScoreWords) -> Table:
    """Table for the scores of a task."""
    return Table(
        "metrics/global_rounds.csv",
        "A row per global round. Known clients train; unseen clients hold users out of training. Statistics "
        "are over known clients unless stated otherwise; a leaf's score is pooled over its known clients.",
        (
            Column("global_round", INT, "", ROUND, at("result.global_round")),
            *_test_columns(w),
            *_cluster_columns(),
            *_participation_columns(),
            *_score_columns(w, "test", ("p10", "jain"), w.test),
            *_unseen_client_columns(w),
            *_cloud_columns(),
            *_agreement_columns(),
            *_score_columns(w, "shared", ("mean", "worst"), w.shared, always=False),
            *_score_columns(w, "tuned", ("mean", "worst"), w.tuned, always=False),
            _privacy_column(),
            *_score_columns(w, "val", ("mean", "std", "worst"), w.val, always=False),
            _loss_column("val_loss", "val_loss", VAL_LOSS, w.nat, always=False),
            *(_leaf_statistic_column(w, statistic) for statistic in ("mean", "std", "worst", "p10", "jain")),
            *_device_columns(),
        ),
    )
