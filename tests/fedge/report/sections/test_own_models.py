"""Clients' own models in reports and comparisons, by hand."""

from dataclasses import replace

import polars as pl
import pytest
from run_folders import round_result, write_run

from fedge import load_run
from fedge.report.comparison.finals import final_lines, finals
from fedge.report.comparison.groups import group_runs
from fedge.report.comparison.metrics import own_model_metrics
from fedge.report.sections.accuracy import own_model_panels
from fedge.tasks.configured import CLASSIFICATION

SCORE = CLASSIFICATION.scores[0]
ROWS = [  # of each round: (client, unseen client, score)
    (1, [(0, 0, 0.2), (1, 0, 0.4), (3, 1, 0.1)]),
    (2, [(0, 0, 0.5), (1, 0, 0.9), (3, 1, 0.3)]),
]


def with_own_models(run, rows, name="personal"):
    """A run of which clients 0 and 1, and client 3 out of training, have models of their own."""
    found = [
        {
            "global_round": number, "client": client, "leaf": client // 2, "model": name, "test_samples": 10,
            "test_score": score, "test_loss": 1.0, "unseen_client": unseen,
        }
        for number, scores in rows
        for client, unseen, score in scores
    ]  # fmt: skip
    return replace(run, client_models=pl.DataFrame(found, schema=run.client_models.schema))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    rounds = [round_result(1, [5, 6, 7, 8]), round_result(2, [9, 10, 9, 10])]
    return load_run(write_run(folder / "run-1", rounds))


def test_a_panel_has_their_mean_and_worst_beside_the_served_models(run):
    (panel,) = own_model_panels(with_own_models(run, ROWS))
    values = {series.label: series.shown for series in panel.points.series}
    assert values == {
        "served models: mean": "0.9500", "personal: mean": "0.7000", "personal: worst": "0.5000",
        "personal, unseen users: mean": "0.3000", "personal, unseen users: worst": "0.3000",
    }  # fmt: skip
    assert [tuple(cells[:3]) for cells in panel.table.rows] == [
        ("1", "personal", "2"), ("1", "personal, unseen users", "1"),
        ("2", "personal", "2"), ("2", "personal, unseen users", "1"),
    ]  # fmt: skip
    assert own_model_panels(run) == []


def test_runs_are_compared_by_them_in_the_last_round(run):
    own = with_own_models(run, ROWS)
    metrics = own_model_metrics(SCORE, [run, own])
    assert {name: metric(own) for name, metric in metrics.items()} == {
        "clients' own models: mean test accuracy": pytest.approx(0.7),
        "clients' own models: worst test accuracy": 0.5,
    }
    assert [metric(run) for metric in metrics.values()] == [None, None]
    assert own_model_metrics(SCORE, [run]) == {}


@pytest.mark.parametrize(("second", "mean"), [((2, [(0, 0, None), (1, 0, 0.9)]), 0.9), ((1, []), None)])
def test_a_cell_without_a_number_is_a_missing_client(run, second, mean):
    own = with_own_models(run, [(1, [(0, 0, None)]), second])
    metrics = own_model_metrics(SCORE, [own])
    assert metrics["clients' own models: mean test accuracy"](own) == mean
    assert len(own_model_panels(own)) == 1


def test_names_of_models_matter_only_where_a_run_has_several(run):
    own, other = with_own_models(run, ROWS), with_own_models(run, ROWS, "mixed")
    assert len(own_model_metrics(SCORE, [own, other])) == 2
    both = replace(run, client_models=pl.concat([own.client_models, other.client_models]))
    assert list(own_model_metrics(SCORE, [own, both])) == [
        f"clients' own models ({name}): {of}"
        for name in ("mixed", "personal")
        for of in ("mean test accuracy", "worst test accuracy")
    ]


def test_of_an_error_the_worst_is_the_largest(run):
    error = replace(SCORE, higher_is_better=False)
    metrics = own_model_metrics(error, [own := with_own_models(run, ROWS)])
    assert metrics["clients' own models: worst test accuracy"](own) == 0.9


def test_a_comparison_prints_them_only_where_a_run_has_them(run):
    printed = "\n".join(final_lines(finals(group_runs([run])[0])))
    assert "own models" not in printed
    printed = "\n".join(final_lines(finals(group_runs([with_own_models(run, ROWS)])[0])))
    assert "clients' own models: mean test accuracy" in printed
