"""Paths below runs/latest are those of the run before, although the link points to the new run at once."""

import csv
import io
import json

import pytest
from small_data import nine_users

from fedge import simulate
from fedge.config.flat import from_run_config
from fedge.run.preparation.latest_run import with_latest_run

TRACE = "runs/latest/metrics/clients.csv"


@pytest.fixture(name="before")
def fixture_before(tmp_path, monkeypatch):
    """A run's folder behind runs/latest, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "before" / "metrics").mkdir(parents=True)
    (tmp_path / "runs" / "before" / "metrics" / "clients.csv").write_text("round,client,leaf\n")
    (tmp_path / "runs" / "latest").symlink_to("before")
    return tmp_path / "runs" / "before"


def test_a_path_below_the_link_is_named_by_the_folder_that_it_leads_to(before):
    """In options and in tables of arguments, relative and absolute."""
    options = {
        "evaluate.common": TRACE, "hierarchy.mobility": "trace", "callbacks": "",
        "hierarchy.mobility-args": json.dumps({"path": str(before.parent / "latest/metrics/clients.csv")}),
        "train.model-args": json.dumps({"files": [{"a": TRACE}], "width": 3}),
    }  # fmt: skip
    config = with_latest_run(from_run_config({**options, "cluster.enabled": False}))
    assert config.evaluate.common == "runs/before/metrics/clients.csv"
    assert config.hierarchy.arguments("mobility") == {"path": "runs/before/metrics/clients.csv"}
    assert json.loads(config.train.model_args) == {
        "files": [{"a": "runs/before/metrics/clients.csv"}], "width": 3
    }  # fmt: skip


@pytest.mark.parametrize("path", ["latest", "runs/latest-2", "runs/latest/absent", "other/latest", ""])
def test_other_texts_stay(before, path):
    (before.parent / "latest-2").mkdir()
    config = from_run_config({"evaluate.common": path, "resume": "runs/latest"})
    assert with_latest_run(config) is config
    (before.parent / "latest").unlink()
    config = from_run_config({"evaluate.common": TRACE})
    assert with_latest_run(config) is config


@pytest.mark.whole_runs
def test_the_moves_of_the_run_before_are_repeated(tmp_path, monkeypatch):
    """As docs/hierarchy.md has it; read through the link, the new run's own table would have no moves."""
    monkeypatch.chdir(tmp_path)
    options = {
        "data.path": nine_users(), "clients": 9, "train.model": "mlp-tiny", "train.local-epochs": 1,
        "num-server-rounds": 3, "scaffold.enabled": False, "cluster.enabled": False, "report": False,
    }  # fmt: skip
    moves = {"hierarchy.mobility": "markov", "hierarchy.mobility-args": '{"stay": 0.5}'}
    repeated = {"hierarchy.mobility": "trace", "hierarchy.mobility-args": json.dumps({"path": TRACE})}
    places = []
    for mobility in (moves, repeated):
        run = simulate({**options, **mobility}, terminal=io.StringIO())
        with (run.folder / "metrics" / "clients.csv").open(newline="") as file:
            places.append([(row["client"], row["leaf"]) for row in csv.DictReader(file)])
    assert places[0] == places[1]
    assert places[0][:9] != places[0][9:18]
