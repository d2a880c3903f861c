"""Table of global rounds, one row per round; see `catalog`."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from fedge.metrics.agreement import Agreement, agreement
from fedge.metrics.scores import Spread
from fedge.records.tables.columns import FLOAT, INT, ROUND, TEXT, Column, Table, at
from fedge.records.tables.score_words import TEST_LOSS, VAL_LOSS, ScoreWords, of_test

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
        """Number of gates that made a decision."""
        return sum(leaf.gate.decision == decision for leaf in self.result.leaves)


_STATISTICS = {
    "mean": "mean", "std": "std", "worst": "smallest", "p10": "10th percentile",
    "jain": "Jain's index",
}  # fmt: skip


_FALLING = {"worst": "largest", "p10": "90th percentile"}  # for scores of which less is better


def _words_of(statistic: str, higher_is_better: bool) -> str:
    """Meaning of a statistic, in words."""
    words = _STATISTICS if higher_is_better else _STATISTICS | _FALLING
    return words[statistic]


def _over(
    column: str,
    statistic: str,
    number: str,
    what: str,
    unit: str = "share",
    unseen: bool = False,
    always: bool = True,
    higher_is_better: bool = True,
) -> Column:
    """Column of a statistic over clients, each with equal weight."""

    def value(row: GlobalRow) -> float | None:
        found = row.spread(number, unseen)
        return None if found is None else float(getattr(found, statistic))

    clients = " of unseen clients" if unseen else ""
    meaning = f"{what}{clients}: {_words_of(statistic, higher_is_better)}"
    return Column(f"{column}_{statistic}", FLOAT, "" if statistic == "jain" else unit, meaning, value, always)


def _over_leaves(w: ScoreWords, statistic: str) -> Column:
    """Column of a statistic over leaves, each with equal weight."""

    def value(row: GlobalRow) -> float | None:
        found = row.over_leaves
        return None if found is None else float(getattr(found, statistic))

    unit = "" if statistic == "jain" else w.unit
    meaning = f"{w.test} of leaves: {_words_of(statistic, w.higher_is_better)}"
    return Column(f"leaf_{w.name}_{statistic}", FLOAT, unit, meaning, value, always=False)


def _of_score(w: ScoreWords, which: str, statistics: Sequence[str], words: str, **more: bool) -> list[Column]:
    """Columns ``{which}_{score}_{statistic}`` over clients."""
    return [
        _over(
            f"{which}_{w.name}",
            statistic,
            f"{'test' if which == 'unseen' else which}_score",
            words,
            w.unit,
            higher_is_better=w.higher_is_better,
            **more,
        )
        for statistic in statistics
    ]


def _tested(w: ScoreWords) -> list[Column]:
    """Test scores of known clients, and their training loss."""
    return [
        *_of_score(w, "test", ("mean", "std", "worst"), w.test),
        _over("test_loss", "mean", "test_loss", TEST_LOSS, w.nat),
        *(_over(f.name, "mean", f.name, of_test(f), f.unit) for f in w.further),
        Column(
            "train_loss_mean",
            FLOAT,
            w.nat,
            "training loss, weighted by training windows",
            at("result.train_loss"),
        ),
    ]


def _grouped() -> list[Column]:
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


def _worked() -> list[Column]:
    """Participating clients, their bytes, the time and the failures."""
    return [
        Column("clients_ok", INT, "clients", "clients: without a failed exchange", at("result.clients_ok")),
        Column(
            "clients_failed",
            INT,
            "clients",
            "clients: with one",
            lambda r: len(r.result.failures),
        ),
        Column("uplink_bytes", INT, "bytes", "arrays: from clients to leaves", at("result.uplink_bytes")),
        Column("downlink_bytes", INT, "bytes", "arrays: from leaves to clients", at("result.downlink_bytes")),
        Column("seconds", FLOAT, "s", "wall time", at("seconds")),
        Column(
            "failures",
            TEXT,
            "clients",
            'kinds and numbers of failures, as "exception 1; rejected 2"',
            lambda r: "; ".join(f"{kind} {count}" for kind, count in r.result.failure_kinds.items()),
            always=False,
        ),
    ]


def _unseen(w: ScoreWords) -> list[Column]:
    """Test scores of unseen clients."""
    return [
        *_of_score(w, "unseen", ("mean", "std", "worst", "p10", "jain"), w.test, unseen=True),
        _over("unseen_loss", "mean", "test_loss", TEST_LOSS, w.nat, unseen=True),
        *(_over(f"unseen_{f.name}", "mean", f.name, of_test(f), f.unit, unseen=True) for f in w.further),
    ]


def _at_cloud() -> list[Column]:
    """Bytes between leaves and the cloud, and changes of its clusters."""
    return [
        Column(
            "cloud_uplink_bytes",
            INT,
            "bytes",
            "arrays: from leaves to the cloud",
            at("result.cloud_uplink_bytes"),
        ),
        Column(
            "cloud_downlink_bytes",
            INT,
            "bytes",
            "arrays: from the cloud to leaves",
            at("result.cloud_downlink_bytes"),
        ),
        Column(
            "churn",
            FLOAT,
            "share",
            "share of leaf pairs joined or separated by a cloud step; empty for the first",
            at("result.churn"),
        ),
    ]


def _agreement() -> list[Column]:
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


def _private() -> Column:
    """Privacy spent by clients."""
    return Column(
        "epsilon_spent",
        FLOAT,
        "",
        "ε spent by clients so far at privacy.delta; empty without privacy or dp-accounting",
        at("result.epsilon_spent"),
        always=False,
    )


def _timed() -> list[Column]:
    """Virtual time and energy of clients as devices."""
    return [
        Column(
            "virtual_s",
            FLOAT,
            "virtual s",
            "virtual time of devices so far",
            at("result.virtual_s"),
            always=False,
        ),
        Column(
            "joules",
            FLOAT,
            "J",
            "energy spent by devices so far",
            at("result.joules"),
            always=False,
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
            *_tested(w),
            *_grouped(),
            *_worked(),
            *_of_score(w, "test", ("p10", "jain"), w.test),
            *_unseen(w),
            *_at_cloud(),
            *_agreement(),
            *_of_score(w, "shared", ("mean", "worst"), w.shared, always=False),
            *_of_score(w, "tuned", ("mean", "worst"), w.tuned, always=False),
            _private(),
            *_of_score(w, "val", ("mean", "std", "worst"), w.val, always=False),
            _over("val_loss", "mean", "val_loss", VAL_LOSS, w.nat, always=False),
            *(_over_leaves(w, statistic) for statistic in ("mean", "std", "worst", "p10", "jain")),
            *_timed(),
        ),
    )
