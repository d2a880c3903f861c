"""Readings of runs, from rows written by hand."""

import math
from types import SimpleNamespace

import polars as pl
import pytest

from studies.tables.readings import diverged, reading

RUN = SimpleNamespace(
    common_test=pl.DataFrame(
        {
            "global_round": [1, 1, 1, 2, 2, 2],
            "model": ["global", "leaf", "leaf"] * 2,
            "number": [None, 0, 1] * 2,
            "test_score": [0.9, 0.5, 0.6, 0.4, 0.2, 0.4],
            "test_loss": [1.0, 1.0, 1.0, 2.0, 2.0, 2.0],
        }
    ),
    rounds=pl.DataFrame(
        {
            "global_round": [1, 2], "virtual_s": [3.0, 7.0], "joules": [8.0, 20.0], "seconds": [30.0, 60.0],
            "leaf_accuracy_mean": [0.1, 0.2], "num_clusters": [1, 3],
        }
    ),
    client_models=pl.DataFrame(
        {
            "global_round": [1, 2, 2, 2, 2], "leaf": [0, 0, 0, 1, 1], "unseen_client": [0, 0, 0, 0, 1],
            "test_samples": [9, 3, 1, 2, 8], "test_score": [0.0, 1.0, 0.2, 0.5, 1.0],
        }
    ),
    manifest={"clients_per_leaf": [2, 2]},
    status="completed",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("best-common", 0.9),
        ("last-common", 0.4),
        ("mean-common", 0.65),
        ("leaves-common", 0.3),
        ("leaves-own", (3.2 / 4 + 0.5) / 2),
        ("collapsed", 0.0),
        ("leaves", 0.2),
        ("clusters", 3.0),
        ("unseen", None),
        ("rounds-to:0.9", 1.0),
        ("seconds-to:0.85", 3.0),
        ("joules-to:0.4", 2.0),
        ("seconds-to:0.95", None),
    ],
)
def test_by_hand(name, by_hand):
    found = reading(name)(RUN)
    assert found == (None if by_hand is None else pytest.approx(by_hand))


def test_clients_without_own_models_have_what_leaves_serve():
    run = SimpleNamespace(client_models=RUN.client_models.clear(), rounds=RUN.rounds)
    assert reading("leaves-own")(run) == 0.2


@pytest.mark.parametrize(
    ("score", "loss", "found"), [(0.19, 1.0, 1.0), (0.2, 1.0, 0.0), (0.5, None, 1.0), (0.5, math.nan, 1.0)]
)
def test_collapse_is_below_twice_chance_or_no_number(score, loss, found):
    rows = pl.DataFrame({"model": ["global"], "test_score": [score], "test_loss": [loss]})
    assert reading("collapsed")(SimpleNamespace(common_test=rows, status="completed")) == found


@pytest.mark.parametrize(
    ("status", "reason", "found"),
    [
        (
            "failed",
            "no client could train in global round 7; client 0: FloatingPointError: loss is nan",
            True,
        ),
        (
            "failed",
            "no client could train in global round 2; client 0: rejected: too large (entry 'w': 2.993e+16)",
            True,
        ),
        ("failed", "the disk is full", False),
        ("completed", "", False),
    ],
)
def test_divergence_is_a_failure_of_training_alone(status, reason, found):
    run = SimpleNamespace(status=status, manifest={"reason": reason}, common_test=RUN.common_test)
    assert diverged(run) is found
    assert reading("collapsed")(run) == found


@pytest.mark.parametrize("name", ["accuracy", "seconds-to", "best-common:1"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="must be one of best-common"):
        reading(name)
