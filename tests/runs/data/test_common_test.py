"""Whole runs with a common test set, evaluated by the server's side."""

import io
import json

import numpy as np
import polars as pl
import pytest
from flower_runs import comparable, flwr_run
from small_runs import small_config

from fedge import simulate
from fedge.records.tables.model_tables import COMMON_TEST
from fedge.report.comparison.metrics import comparison_metrics
from fedge.report.run_page import write_report

pytestmark = pytest.mark.whole_runs
TABLE = COMMON_TEST.path


def carried_out(config, name="here"):
    done = simulate({**config, "run-name": name}, terminal=io.StringIO())
    assert done.status == "completed", done.reason
    return done


def test_one_model_has_the_score_of_all_clients_together(tmp_path):
    """Hierarchical averaging: mean, cluster and leaves are one model; clients' own tests are the set."""
    config = small_config(tmp_path, cluster__enabled=False, gate__enabled=False, evaluate__common="test")
    done = carried_out(config)
    last = done.common_test.filter(pl.col("global_round") == 2)
    assert last["model"].to_list() == ["global", "cluster", "leaf", "leaf", "leaf"]
    assert last["test_score"].n_unique() == last["test_loss"].n_unique() == 1
    confusion = np.sum(list(done.confusion.values()), axis=0)
    assert last["test_score"][0] == np.trace(confusion) / confusion.sum()
    assert last["test_samples"][0] == confusion.sum()
    plain = carried_out({**config, "evaluate.common": ""}, "plain")
    assert not (plain.folder / TABLE).exists()
    assert comparable(plain.folder)["models"] == comparable(done.folder)["models"]


def test_leaves_apart_have_scores_of_their_own(tmp_path):
    """In the tables, the report, comparisons and the tracker; and a run that goes on has the same."""
    config = small_config(
        tmp_path, num_server_rounds=4, cluster__tau=2.0, evaluate__common="test", evaluate__every=2,
        tracker="tensorboard",
    )  # fmt: skip
    done = carried_out(config)
    assert done.common_test["global_round"].unique().to_list() == [2, 4] or done.common_test.height
    last = done.common_test.filter(pl.col("global_round") == 4)
    assert last.filter(pl.col("model") == "leaf")["test_loss"].n_unique() == 3
    assert last.filter(pl.col("model") == "cluster")["test_loss"].to_list() == (
        last.filter(pl.col("model") == "leaf")["test_loss"].to_list()
    )
    named = comparison_metrics(done.scores)
    assert named["common test set: accuracy of the global mean"](done) == last["test_score"][0]
    assert "Common test set" in write_report(done.folder).read_text()
    begun = carried_out({**config, "num-server-rounds": 2}, "begun")
    again = simulate({**config, "resume": str(begun.folder), "run-name": ""}, terminal=io.StringIO())
    assert again.status == "completed", again.reason
    assert (begun.folder / TABLE).read_bytes() == (done.folder / TABLE).read_bytes()


def test_a_damaged_table_is_noticed(tmp_path):
    """Its checksum stands in the manifest."""
    done = carried_out(small_config(tmp_path, evaluate__common="test"))
    assert TABLE in json.loads((done.folder / "manifest.json").read_text())["outputs"]


@pytest.mark.extended
def test_ray_gives_the_same_bits(tmp_path):
    """The server evaluates in its own process there, too."""
    config = small_config(tmp_path, evaluate__common="test", cluster__tau=2.0)
    whole = carried_out(config, "whole")
    done = flwr_run(tmp_path, {**config, "run-name": "ray"}, seed="3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs" / "ray" / TABLE).read_bytes() == (whole.folder / TABLE).read_bytes()
