"""A loss and scores of a user's project, in whole runs: columns and refusals."""

import io
import sys
from pathlib import Path

import pytest

import fedge
from fedge.config.registers.option import ConfigError

LOSSES = Path(__file__).parents[2] / "fedge" / "tasks" / "my_losses.py"
OPTIONS = {
    "num-server-rounds": 2, "train.model": "linear", "train.local-epochs": 1, "hierarchy.num-servers": 2,
    "partition.kind": "iid", "data.path": "digits", "report": False,
    "train.metrics": "my_losses:balanced_accuracy,my_losses:errors",
}  # fmt: skip


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Go to an empty folder with a user's file."""
    (tmp_path / "my_losses.py").write_text(LOSSES.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)
    return tmp_path


def ran(name, **changes):
    """A run of six clients."""
    options = {**OPTIONS, "run-name": name, **{key.replace("__", "."): v for key, v in changes.items()}}
    fedge.simulate(options, clients=6, terminal=io.StringIO())
    return fedge.load_run(f"runs/{name}")


def test_scores_are_columns_and_change_nothing_else_and_a_loss_changes_training(project):
    plain = ran("plain", train__metrics="")
    scored = ran("scored")
    focal = ran("focal", train__loss="my_losses:focal")
    assert [score.name for score in scored.scores][2:] == ["balanced_accuracy", "errors"]
    assert scored.problems == []
    new = {"balanced_accuracy", "errors"}
    assert set(scored.clients.columns) - set(plain.clients.columns) == new
    both = [name for name in plain.clients.columns if name != "train_seconds"]
    assert scored.clients.select(both).equals(plain.clients.select(both))
    last = scored.clients.filter(scored.clients["global_round"] == 2).to_dicts()
    for row in last:
        wrong = (1 - row["test_accuracy"]) * row["test_samples"]
        assert row["errors"] == pytest.approx(wrong)
        assert 0 < row["balanced_accuracy"] <= 1
    leaf = scored.leaves.filter(scored.leaves["global_round"] == 2).to_dicts()[0]
    assert leaf["errors"] == sum(row["errors"] for row in last if row["leaf"] == 0)
    assert scored.rounds["errors_mean"][-1] == pytest.approx(sum(row["errors"] for row in last) / 6)
    assert focal.rounds["train_loss_mean"][0] < scored.rounds["train_loss_mean"][0]


def test_served_models_have_validation_scores_and_early_stopping_goes_by_them(project):
    table = '{"early-stopping": {"patience": 1, "min-delta": 1}}'
    run = ran("stopped", train__metrics="", callbacks="early-stopping", **{"callbacks-args": table})
    assert run.status == "completed"
    assert len(run.rounds) == 2
    assert run.manifest["stopped"]["reason"].startswith("val_accuracy_mean has not got better than ")
    clients = run.clients.filter(run.clients["global_round"] == 2)
    mean = clients["val_accuracy"].mean()
    assert run.rounds["val_accuracy_mean"][-1] == pytest.approx(mean)
    assert clients["val_samples"].min() > 0
    assert run.rounds["leaf_accuracy_worst"][-1] == pytest.approx(
        run.leaves.filter(run.leaves["global_round"] == 2)["test_accuracy"].min()
    )


def test_a_wrong_score_is_refused_before_a_run_begins(project):
    with pytest.raises(ConfigError, match="score broken failed on a made-up confusion matrix"):
        ran("never", train__metrics="my_losses:broken")
    with pytest.raises(ConfigError, match=r"train\.kernel native needs train\.loss to be auto"):
        ran("never", train__loss="my_losses:focal", train__kernel="native", train__metrics="")
    assert not (project / "runs" / "never").exists()
