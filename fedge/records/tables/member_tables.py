"""Tables of leaves and of clients: one row per leaf, or client, per global round; see `catalog`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedge.records.tables.columns import FLOAT, INT, ROUND, TEXT, USUAL, Column, Table, at, later_column
from fedge.records.tables.score_words import (
    TEST_LOSS,
    VAL_LOSS,
    ScoreWords,
    further_score_meaning,
    further_score_reader,
)

if TYPE_CHECKING:
    from fedge.rounds.measurements.results import ClientResult, LeafResult


@dataclass(frozen=True)
class LeafRow:
    """Source of a row of leaf_rounds.csv."""

    global_round: int
    leaf: "LeafResult"


def _key_columns() -> list[Column]:
    """Round, leaf and cluster of a row."""
    return [
        Column("global_round", INT, "", ROUND, at("global_round")),
        Column("leaf", INT, "", USUAL["leaf"], at("leaf.leaf")),
        Column("cluster", INT, "", "cluster of the leaf after the round", at("leaf.cluster")),
    ]


def _offer_columns(w: ScoreWords) -> list[Column]:
    """Validation scores of the leaf's own and offered models, and its decision."""
    return [
        Column(
            f"val_{w.name}_own",
            FLOAT,
            w.unit,
            f"validation {w.said}, pooled over its clients: own model",
            at("leaf.gate.score_own"),
        ),
        Column(
            f"val_{w.name}_offered",
            FLOAT,
            w.unit,
            f"validation {w.said}, pooled over its clients: offered model",
            at("leaf.gate.score_offered"),
        ),
        Column(
            "gate",
            TEXT,
            "",
            "`accepted`, `rejected`, or `off` without a decision; if a region above decides, all its leaves "
            "have its scores, evidence and decision; of several in a round (`hierarchy.region-rounds`), the "
            "newest",
            at("leaf.gate.decision"),
        ),
    ]


def _test_columns(w: ScoreWords) -> list[Column]:
    """Test scores of known clients."""
    return [
        Column(f"test_{w.name}", FLOAT, w.unit, w.test, at("leaf.test_score")),
        Column("test_loss", FLOAT, w.nat, TEST_LOSS, at("leaf.test_loss")),
        *(
            Column(
                f.name, FLOAT, f.unit, further_score_meaning(f), further_score_reader("leaf.further", f.name)
            )
            for f in w.further
        ),
        Column("num_clients", INT, "clients", "known clients", at("leaf.num_clients")),
        Column("train_samples", INT, "windows", "training windows", at("leaf.train_samples")),
        later_column(
            "kept_model",
            INT,
            "leaf rounds",
            "leaf rounds without a new model, for lack of accepted replies",
            at("leaf.kept_model"),
        ),
    ]


def _unseen_client_columns(w: ScoreWords) -> list[Column]:
    """Test scores of unseen clients."""
    return [
        Column(f"unseen_{w.name}", FLOAT, w.unit, f"{w.test}, unseen clients", at("leaf.unseen_score")),
        Column("unseen_loss", FLOAT, w.nat, f"{TEST_LOSS}, unseen clients", at("leaf.unseen_loss")),
        *(
            Column(
                f"unseen_{f.name}",
                FLOAT,
                f.unit,
                f"{further_score_meaning(f)}, unseen clients",
                further_score_reader("leaf.unseen_further", f.name),
            )
            for f in w.further
        ),
        Column("unseen_clients", INT, "clients", "unseen clients", at("leaf.unseen_clients")),
    ]


def _served_model_columns() -> list[Column]:
    """Role of the served model, and mixture of the offer."""
    return [
        later_column("serves", TEXT, "", "role of the model served to known clients", at("leaf.serves")),
        later_column(
            "blend",
            FLOAT,
            "share",
            "share of the cluster's model in the offer",
            at("leaf.gate.blend"),
        ),
    ]


def _evidence_columns(w: ScoreWords) -> list[Column]:
    """Evidence for the gate: windows on which the two models differ."""
    return [
        later_column(
            "val_windows",
            INT,
            "windows",
            "validation windows: compared",
            at("leaf.gate.pair.windows"),
        ),
        later_column(
            "val_only_own",
            INT,
            "windows",
            "validation windows: right in its own model only",
            at("leaf.gate.pair.only_own"),
        ),
        later_column(
            "val_only_offered",
            INT,
            "windows",
            "validation windows: right in the offered model only",
            at("leaf.gate.pair.only_offered"),
        ),
        later_column(
            "val_standard_error",
            FLOAT,
            w.unit,
            f"standard error of offered − own {w.said}",
            at("leaf.gate.pair.standard_error"),
        ),
        later_column(
            "val_p_value",
            FLOAT,
            "",
            "one-sided p-value of the paired test that own is no better; McNemar's for right and wrong "
            "windows",
            at("leaf.gate.pair.p_value"),
        ),
    ]


def _fine_tuning_columns(w: ScoreWords) -> list[Column]:
    """Validation scores before and after fine-tuning."""
    return [
        later_column(
            f"val_{w.name}_before",
            FLOAT,
            w.unit,
            f"validation {w.said}: before fine-tuning",
            at("leaf.personal.score_before"),
        ),
        later_column(
            f"val_{w.name}_personal",
            FLOAT,
            w.unit,
            f"validation {w.said}: after fine-tuning",
            at("leaf.personal.score"),
        ),
    ]


def _validation_columns(w: ScoreWords) -> list[Column]:
    """Planted group, and validation scores of the served model."""
    return [
        later_column("group", INT, "", "planted group", at("leaf.group")),
        later_column(f"val_{w.name}", FLOAT, w.unit, w.val, at("leaf.val_score")),
        later_column("val_loss", FLOAT, w.nat, VAL_LOSS, at("leaf.val_loss")),
    ]


def leaf_table(w: ScoreWords) -> Table:
    """Table of leaves for the scores of a task."""
    return Table(
        "metrics/leaf_rounds.csv",
        "A row per leaf per global round; scores are of known clients unless stated otherwise, test scores "
        "pooled over their windows.",
        (
            *_key_columns(),
            *_offer_columns(w),
            *_test_columns(w),
            *_unseen_client_columns(w),
            *_served_model_columns(),
            *_evidence_columns(w),
            *_fine_tuning_columns(w),
            *_validation_columns(w),
        ),
    )


@dataclass(frozen=True)
class ClientRow:
    """Source of a row of clients.csv."""

    global_round: int
    client: "ClientResult"


def client_table(w: ScoreWords) -> Table:
    """Table of clients for the scores of a task."""
    return Table(
        "metrics/clients.csv",
        "A row per client per global round, also for unseen clients; a cell is empty without participation "
        "or after a failure.",
        (
            Column("global_round", INT, "", ROUND, at("global_round")),
            Column("client", INT, "", USUAL["client"], at("client.client")),
            Column("leaf", INT, "", USUAL["leaf"], at("client.leaf")),
            Column(
                "train_samples",
                INT,
                "windows",
                "training windows; 0 for an unseen client",
                at("client.train_samples"),
            ),
            Column(
                "train_loss",
                FLOAT,
                w.nat,
                "training loss, mean over its last leaf round",
                at("client.train_loss"),
            ),
            Column("test_samples", INT, "windows", "test windows", at("client.test_samples")),
            Column(f"test_{w.name}", FLOAT, w.unit, w.test, at("client.test_score")),
            *(
                Column(
                    f.name,
                    FLOAT,
                    f.unit,
                    further_score_meaning(f),
                    further_score_reader("client.further", f.name),
                )
                for f in w.further
            ),
            Column("train_seconds", FLOAT, "s", "training, all leaf rounds", at("client.train_seconds")),
            Column("test_loss", FLOAT, w.nat, TEST_LOSS, at("client.test_loss")),
            Column(
                "unseen_client",
                INT,
                "",
                USUAL["unseen_client"],
                lambda r: int(r.client.unseen_client),
            ),
            later_column(
                f"shared_{w.name}",
                FLOAT,
                w.unit,
                w.shared,
                at("client.shared_score"),
            ),
            later_column(f"tuned_{w.name}", FLOAT, w.unit, w.tuned, at("client.tuned_score")),
            later_column("val_samples", INT, "windows", "validation windows", at("client.val_samples")),
            later_column(f"val_{w.name}", FLOAT, w.unit, w.val, at("client.val_score")),
            later_column("val_loss", FLOAT, w.nat, VAL_LOSS, at("client.val_loss")),
            later_column(
                "asked",
                INT,
                "leaf rounds",
                "leaf rounds with a request to train; empty for unseen clients and on the virtual clock",
                at("client.asked"),
            ),
            later_column(
                "came_from",
                INT,
                "",
                "leaf before this round",
                at("client.came_from"),
            ),
        ),
    )
