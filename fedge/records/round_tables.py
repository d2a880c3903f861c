"""The tables of global rounds: a row per round, per leaf of one, per client of one; see `catalog`."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fedge.metrics.agreement import Agreement, agreement
from fedge.metrics.scores import Spread
from fedge.records.columns import FLOAT, INT, ROUND, TEXT, Column, Table, at, later

if TYPE_CHECKING:
    from fedge.rounds.results import ClientResult, LeafResult, RoundResult


class GlobalRow:
    """What a row of global_rounds.csv is made from; every spread is computed once."""

    def __init__(self, result: "RoundResult", seconds: float) -> None:
        """Take in a round that took `seconds`."""
        self.result = result
        self.seconds = seconds
        self._spreads: dict[tuple[str, bool], Spread | None] = {}

    def spread(self, name: str, unseen: bool) -> Spread | None:
        """Return a client's number over the known clients, or over the unseen ones; None without any."""
        key = (name, unseen)
        if key not in self._spreads:
            self._spreads[key] = self.result.over_clients(name, unseen)
        return self._spreads[key]

    @cached_property
    def agreement(self) -> Agreement | None:
        """How far the clusters are the planted groups; None without any."""
        truth = self.result.truth
        return None if truth is None else agreement(truth, self.result.labels)

    def decided(self, decision: str) -> int:
        """Return how many gates decided so."""
        return sum(leaf.gate.decision == decision for leaf in self.result.leaves)


_STATISTICS = {
    "mean": "mean", "std": "population standard deviation", "worst": "smallest", "p10": "10th percentile",
    "jain": "Jain's fairness index (Σx)² / (n Σx²)",
}  # fmt: skip


def _over(
    column: str,
    statistic: str,
    number: str,
    what: str,
    unit: str = "share",
    unseen: bool = False,
    always: bool = True,
) -> Column:
    """Return the column of a statistic over clients, each of which counts the same."""

    def value(row: GlobalRow) -> float | None:
        found = row.spread(number, unseen)
        return None if found is None else float(getattr(found, statistic))

    clients = "unseen clients" if unseen else "known clients"
    meaning = f"{_STATISTICS[statistic]} over {clients} of {what}"
    return Column(f"{column}_{statistic}", FLOAT, "" if statistic == "jain" else unit, meaning, value, always)


_ACCURACY = "test accuracy of the served model"
_F1 = "macro-F1 of the served model on test windows"
_TEST_LOSS = "mean test loss of the served model"
_SHARED = "test accuracy of the model that was fine-tuned, before it was"
_TUNED = "test accuracy of the fine-tuned model, whether it is served or not"
GLOBAL = Table(
    "metrics/global_rounds.csv",
    "A row per global round. Known clients are those that train; unseen clients hold users out of training.",
    (
        Column("global_round", INT, "", ROUND, at("result.global_round")),
        _over("test_accuracy", "mean", "test_accuracy", _ACCURACY),
        _over("test_accuracy", "std", "test_accuracy", _ACCURACY),
        _over("test_accuracy", "worst", "test_accuracy", _ACCURACY),
        _over("test_loss", "mean", "test_loss", _TEST_LOSS, "nat"),
        _over("macro_f1", "mean", "macro_f1", _F1),
        Column(
            "train_loss_mean",
            FLOAT,
            "nat",
            "training loss, weighted by training windows",
            at("result.train_loss"),
        ),
        Column("num_clusters", INT, "", "clusters after the round", lambda r: len(set(r.result.labels))),
        Column(
            "cluster_labels",
            TEXT,
            "",
            "cluster of each leaf, separated by spaces",
            lambda r: " ".join(map(str, r.result.labels)),
        ),
        Column(
            "gate_accepted", INT, "leaves", "took what they were offered", lambda r: r.decided("accepted")
        ),
        Column("gate_rejected", INT, "leaves", "kept their own model", lambda r: r.decided("rejected")),
        Column("clients_ok", INT, "clients", "whose every exchange succeeded", at("result.clients_ok")),
        Column(
            "clients_failed", INT, "clients", "that failed at least once", lambda r: len(r.result.failures)
        ),
        Column("uplink_bytes", INT, "bytes", "arrays from clients to leaves", at("result.uplink_bytes")),
        Column("downlink_bytes", INT, "bytes", "arrays from leaves to clients", at("result.downlink_bytes")),
        Column("seconds", FLOAT, "s", "wall time", at("seconds")),
        Column(
            "failures",
            TEXT,
            "clients",
            'kinds of failures and how many, as "exception 1; rejected 2"',
            lambda r: "; ".join(f"{kind} {count}" for kind, count in r.result.failure_kinds.items()),
            always=False,
        ),
        _over("test_accuracy", "p10", "test_accuracy", _ACCURACY),
        _over("test_accuracy", "jain", "test_accuracy", _ACCURACY),
        *(
            _over("unseen_accuracy", statistic, "test_accuracy", _ACCURACY, unseen=True)
            for statistic in ("mean", "std", "worst", "p10", "jain")
        ),
        _over("unseen_loss", "mean", "test_loss", _TEST_LOSS, "nat", unseen=True),
        _over("unseen_macro_f1", "mean", "macro_f1", _F1, unseen=True),
        Column(
            "cloud_uplink_bytes",
            INT,
            "bytes",
            "arrays from leaves to the cloud",
            at("result.cloud_uplink_bytes"),
        ),
        Column(
            "cloud_downlink_bytes",
            INT,
            "bytes",
            "arrays from the cloud to leaves",
            at("result.cloud_downlink_bytes"),
        ),
        Column(
            "churn",
            FLOAT,
            "share",
            "pairs of leaves that a cloud step joined or parted; empty for the first and without one",
            at("result.churn"),
        ),
        *(
            Column(
                name,
                FLOAT,
                "",
                f"{words} of clusters and planted groups; empty without a scenario",
                at(f"agreement.{name}"),
            )
            for name, words in (
                ("ari", "adjusted Rand index"),
                ("nmi", "normalised mutual information"),
                ("homogeneity", "homogeneity"),
                ("completeness", "completeness"),
            )
        ),
        *(
            _over(f"{which}_accuracy", statistic, f"{which}_accuracy", what, always=False)
            for which, what in (("shared", _SHARED), ("tuned", _TUNED))
            for statistic in ("mean", "worst")
        ),
        Column(
            "epsilon_spent",
            FLOAT,
            "",
            "ε that clients have spent so far at privacy.delta; empty without privacy or dp-accounting",
            at("result.epsilon_spent"),
            always=False,
        ),
    ),
)


@dataclass(frozen=True)
class LeafRow:
    """What a row of leaf_rounds.csv is made from."""

    global_round: int
    leaf: "LeafResult"


LEAF = Table(
    "metrics/leaf_rounds.csv",
    "A row per leaf per global round; test scores are pooled over the windows of its clients.",
    (
        Column("global_round", INT, "", ROUND, at("global_round")),
        Column("leaf", INT, "", "number of the leaf, from 0", at("leaf.leaf")),
        Column("cluster", INT, "", "its cluster after the round", at("leaf.cluster")),
        Column(
            "val_accuracy_own",
            FLOAT,
            "share",
            "validation accuracy of its own model, pooled over its clients",
            at("leaf.gate.accuracy_own"),
        ),
        Column(
            "val_accuracy_offered",
            FLOAT,
            "share",
            "the same of the offered model; empty without an offer",
            at("leaf.gate.accuracy_offered"),
        ),
        Column(
            "gate",
            TEXT,
            "",
            "`accepted`, `rejected`, or `off` where it did not decide",
            at("leaf.gate.decision"),
        ),
        Column("test_accuracy", FLOAT, "share", f"{_ACCURACY}, known clients", at("leaf.test_accuracy")),
        Column("test_loss", FLOAT, "nat", f"{_TEST_LOSS}, known clients", at("leaf.test_loss")),
        Column("macro_f1", FLOAT, "share", f"{_F1}, known clients", at("leaf.macro_f1")),
        Column("num_clients", INT, "clients", "known clients", at("leaf.num_clients")),
        Column("train_samples", INT, "windows", "training windows of its clients", at("leaf.train_samples")),
        later(
            "kept_model",
            INT,
            "leaf rounds",
            "in which too few replies counted, so it kept its model",
            at("leaf.kept_model"),
        ),
        Column("unseen_accuracy", FLOAT, "share", f"{_ACCURACY}, unseen clients", at("leaf.unseen_accuracy")),
        Column("unseen_loss", FLOAT, "nat", f"{_TEST_LOSS}, unseen clients", at("leaf.unseen_loss")),
        Column("unseen_macro_f1", FLOAT, "share", f"{_F1}, unseen clients", at("leaf.unseen_macro_f1")),
        Column("unseen_clients", INT, "clients", "unseen clients", at("leaf.unseen_clients")),
        later("serves", TEXT, "", "role of the model that its known clients are served", at("leaf.serves")),
        later(
            "blend",
            FLOAT,
            "share",
            "of the cluster's model in the offer, the rest is the mean of all leaves",
            at("leaf.gate.blend"),
        ),
        later(
            "val_windows",
            INT,
            "windows",
            "validation windows on which both models were compared",
            at("leaf.gate.pair.windows"),
        ),
        later(
            "val_only_own",
            INT,
            "windows",
            "of these only its own model has right",
            at("leaf.gate.pair.only_own"),
        ),
        later(
            "val_only_offered",
            INT,
            "windows",
            "of these only the offered model has right",
            at("leaf.gate.pair.only_offered"),
        ),
        later(
            "val_standard_error",
            FLOAT,
            "share",
            "standard error of offered − own accuracy",
            at("leaf.gate.pair.standard_error"),
        ),
        later(
            "val_p_value",
            FLOAT,
            "",
            "of McNemar's one-sided test that own is no better",
            at("leaf.gate.pair.p_value"),
        ),
        later(
            "val_accuracy_before",
            FLOAT,
            "share",
            "validation accuracy before fine-tuning",
            at("leaf.personal.accuracy_before"),
        ),
        later(
            "val_accuracy_personal",
            FLOAT,
            "share",
            "validation accuracy after it",
            at("leaf.personal.accuracy"),
        ),
        later("group", INT, "", "planted group in this round; empty without a scenario", at("leaf.group")),
    ),
)


@dataclass(frozen=True)
class ClientRow:
    """What a row of clients.csv is made from."""

    global_round: int
    client: "ClientResult"


CLIENTS = Table(
    "metrics/clients.csv",
    "A row per client per global round, unseen clients among them; a cell is empty where a client did not "
    "take part or failed.",
    (
        Column("global_round", INT, "", ROUND, at("global_round")),
        Column("client", INT, "", "its partition id, from 0", at("client.client")),
        Column("leaf", INT, "", "number of its leaf", at("client.leaf")),
        Column(
            "train_samples",
            INT,
            "windows",
            "that it trains on; 0 for an unseen client",
            at("client.train_samples"),
        ),
        Column("train_loss", FLOAT, "nat", "mean of its last leaf round's training", at("client.train_loss")),
        Column("test_samples", INT, "windows", "that it was tested on", at("client.test_samples")),
        Column("test_accuracy", FLOAT, "share", _ACCURACY, at("client.test_accuracy")),
        Column("macro_f1", FLOAT, "share", f"{_F1}, over the classes that occur", at("client.macro_f1")),
        Column("train_seconds", FLOAT, "s", "of its training, all leaf rounds", at("client.train_seconds")),
        Column("test_loss", FLOAT, "nat", _TEST_LOSS, at("client.test_loss")),
        Column(
            "unseen_client",
            INT,
            "",
            "1: holds users out of training; 0: trains",
            lambda r: int(r.client.unseen_client),
        ),
        later(
            "shared_accuracy",
            FLOAT,
            "share",
            f"{_SHARED}; empty in other rounds",
            at("client.shared_accuracy"),
        ),
        later("tuned_accuracy", FLOAT, "share", _TUNED, at("client.tuned_accuracy")),
    ),
)
