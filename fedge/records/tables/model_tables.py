"""Tables of models other than the served ones: clients' own models, and mixtures; see `catalog`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedge.records.tables.columns import FLOAT, INT, ROUND, TEXT, USUAL, Column, Table, at

if TYPE_CHECKING:
    from fedge.rounds.measurements.results import CommonResult, ModelResult


@dataclass(frozen=True)
class ModelRow:
    """Source of a row of client_models.csv."""

    global_round: int
    one: "ModelResult"


CLIENT_MODELS = Table(
    "metrics/client_models.csv",
    "A row per client, own model of its algorithm (`train.algorithm`) and global round, on its test windows; "
    "only for algorithms with such models. A failed client has no row.",
    (
        Column("global_round", INT, "", ROUND, at("global_round")),
        Column("client", INT, "", USUAL["client"], at("one.client")),
        Column("leaf", INT, "", USUAL["leaf"], at("one.leaf")),
        Column("model", TEXT, "", "the algorithm's name", at("one.model")),
        Column("test_samples", INT, "windows", "test windows", at("one.test_samples")),
        Column(
            "test_score",
            FLOAT,
            "",
            "first score of the task, as accuracy 0..1",
            at("one.test_score"),
        ),
        Column("test_loss", FLOAT, "", "mean test loss, in its unit", at("one.test_loss")),
        Column(
            "unseen_client",
            INT,
            "",
            USUAL["unseen_client"],
            lambda row: int(row.one.unseen_client),
        ),
    ),
    always=False,
)


@dataclass(frozen=True)
class CommonRow:
    """Source of a row of common_test.csv."""

    global_round: int
    one: "CommonResult"


COMMON_TEST = Table(
    "metrics/common_test.csv",
    "A row per model and evaluated global round on the common test set (`evaluate.common`), if there is one: "
    "the mean of all leaves' served models, weighted by training windows, each cluster's mean, each leaf's "
    "model.",
    (
        Column("global_round", INT, "", ROUND, at("global_round")),
        Column("model", TEXT, "", "`global`, `cluster` or `leaf`", at("one.model")),
        Column("number", INT, "", "number of the cluster or leaf; empty for `global`", at("one.number")),
        Column("test_samples", INT, "windows", "windows of the set", at("one.samples")),
        Column(
            "test_score", FLOAT, "", "first score of the task, as accuracy 0..1",
            at("one.test_score"),
        ),
        Column(
            "test_loss", FLOAT, "", "mean loss, in its unit; empty if not finite",
            at("one.test_loss"),
        ),
    ),
    always=False,
)  # fmt: skip


@dataclass(frozen=True)
class MembershipRow:
    """Source of a row of memberships.csv."""

    global_round: int
    leaf: int
    model: int
    membership: float
    models: int
    entropy: float


MEMBERSHIPS = Table(
    "metrics/memberships.csv",
    "A row per child of the cloud (leaf, or region in a deeper tree), model and cloud step, for methods "
    "that mix models.",
    (
        Column("global_round", INT, "", ROUND, at("global_round")),
        Column("leaf", INT, "", "number of the cloud's child", at("leaf")),
        Column("model", INT, "", "number of the model in this step, from 0", at("model")),
        Column("membership", FLOAT, "", "its share in the leaf's offer, 0..1", at("membership")),
        Column("models", INT, "", "models in this step", at("models")),
        Column(
            "entropy", FLOAT, "nat", "entropy of the leaf's memberships; 0 for one model", at("entropy"),
        ),
    ),
    always=False,
)  # fmt: skip
