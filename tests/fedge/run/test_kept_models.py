"""Models kept beside the final ones: of chosen rounds, and the best by validation score."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from small_data import nine_users

from fedge import load_run, simulate
from fedge.cli import main
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.examples.diabetes import diabetes
from fedge.exchange.engine import RunError
from fedge.records.manifest import RunFolderError
from fedge.run.snapshot import Snapshots
from hhar import save_windows

pytestmark = pytest.mark.whole_runs

SMALL = {
    "data.path": "diabetes", "train.task": "regression", "train.model": "linear", "clients": 4,
    "hierarchy.num-servers": 2, "num-server-rounds": 4, "train.local-epochs": 1, "report": False,
    "partition.unseen-clients": 1,
}  # fmt: skip
CLOCK = {
    "asynchrony.rule": "fedasync", "asynchrony.concurrency": 2, "scaffold.enabled": False,
    "gate.enabled": False, "cluster.enabled": False, "partition.unseen-clients": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kept(run):
    """Name → sha256 of the files of models that a run has."""
    files = (run.folder / "checkpoints").glob("*.safetensors")
    return {file.stem: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize("every", [1, 2])
def test_the_best_are_those_of_the_least_error_on_validation_windows(every):
    """An early round is the best under a step that diverges; kept models are those of a run of so many."""
    options = {**SMALL, "train.lr": 0.3, "gate.enabled": False, "evaluate.every": every}
    run = simulate({**options, "checkpoint.models": "2,3,best", "run-name": "all"})
    errors = run.rounds["val_rmse_mean"]
    best = int(run.rounds["global_round"][errors.arg_min()])
    short = {
        n: simulate({**options, "num-server-rounds": n, "run-name": f"to-{n}"}) for n in {2, 3, best} - {4}
    }
    for name, number in (("2", 2), ("3", 3), ("best", best)):
        other = short.get(number, run)
        for mine, theirs in zip(run.models(kept=name), other.models(), strict=True):
            assert all(np.array_equal(mine[entry], theirs[entry]) for entry in theirs), name
    assert set(kept(run)) == {"final", "models-2", "models-3", "models-best"}


def test_a_run_that_goes_on_keeps_the_same():
    """Every file has the bytes of a run that was never cut, after an end at two of four rounds."""
    options = {**SMALL, "train.lr": 0.3, "checkpoint.models": "1,3,best"}
    whole = simulate({**options, "run-name": "whole"})
    first = simulate({**options, "num-server-rounds": 2, "checkpoint.models": "1,best", "run-name": "cut"})
    again = simulate({**options, "resume": str(first.folder)})
    assert again.status == "completed", again.reason
    assert kept(again) == kept(whole)


@pytest.mark.parametrize("every", [1, pytest.param(2, marks=pytest.mark.extended)])
@pytest.mark.parametrize("lr", [pytest.param(0.02, marks=pytest.mark.extended), 0.3])
def test_the_best_after_a_fault_in_any_round_is_that_of_a_run_without(lr, every, monkeypatch):
    """Models of a round are written, its checkpoint is not; with steps that get better, and that diverge."""
    options = {**SMALL, "train.lr": lr, "checkpoint.models": "1,2,best", "checkpoint.every": every}
    whole = simulate({**options, "run-name": "whole"})
    for broken in range(1, 5):
        with monkeypatch.context() as patch:
            patch.setattr(Snapshots, "after", falling_over(broken))
            first = simulate({**options, "run-name": f"broken-{broken}"})
        assert first.status == "failed"
        again = simulate({**options, "resume": str(first.folder)})
        assert again.status == "completed", again.reason
        assert kept(again) == kept(whole), broken
        assert again.manifest["outputs"]["checkpoints/models-best.safetensors"] == kept(whole)["models-best"]


def falling_over(at):
    """Method of snapshots that fails in a round."""
    after = Snapshots.after

    def fails(self, global_round, *rest):
        if global_round == at:
            raise RunError("no room")
        after(self, global_round, *rest)

    return fails


def test_rounds_that_are_done_cannot_be_asked_for(capsys):
    run = simulate({**SMALL, "num-server-rounds": 2, "checkpoint.models": "1", "run-name": "a"})
    for models, word in (("1,2", "2"), ("1,best", "best")):
        with pytest.raises(
            ConfigError, match=f"checkpoint.models cannot name {word} now, since .* has done 2"
        ):
            simulate({**SMALL, "checkpoint.models": models, "resume": str(run.folder)})
    again = simulate({**SMALL, "checkpoint.models": "1,3", "resume": str(run.folder)})
    assert set(kept(again)) == {"final", "models-1", "models-3"}


def test_a_damaged_one_is_said_and_goes(capsys):
    run = simulate({**SMALL, "checkpoint.models": "1,2", "run-name": "a"})
    before = kept(run)
    (run.folder / "checkpoints" / "models-2.safetensors").write_bytes(b"x")
    assert main(["status", "a"]) == 4
    assert "checkpoints/models-2.safetensors is not as the run wrote it" in capsys.readouterr().out
    assert main(["resume", "a"]) == 0
    assert (
        "checkpoints/models-2.safetensors is not from round 4 or before; it is dropped"
        in capsys.readouterr().out
    )
    del before["models-2"]
    assert kept(run) == before
    assert main(["status", "a"]) == 0


def test_models_are_whole_where_only_what_trains_travels():
    """Predict and export need frozen entries, too."""
    half = {
        "data.path": nine_users(), "clients": 9, "hierarchy.num-servers": 3, "num-server-rounds": 2,
        "train.model": "half_frozen:HalfFrozen", "report": False,
        "checkpoint.models": "1,best",
    }  # fmt: skip
    runs = [simulate({**half, "train.exchange": way, "run-name": way}) for way in ("all", "trainable")]
    for name in ("1", "best", ""):
        everything, trained = (run.models(kept=name)[0] for run in runs)
        assert "hidden.weight" in trained
        assert all(np.array_equal(trained[entry], everything[entry]) for entry in everything), name


def test_predict_and_export_take_them(capsys):
    run = simulate({**SMALL, "checkpoint.models": "1,best", "run-name": "a"})
    save_windows(Path("raw.npz"), diabetes())
    assert main(["predict", "a", "raw.npz", "-o", "one.csv", "--kept", "1"]) == 0
    assert main(["predict", "a", "raw.npz", "-o", "final.csv"]) == 0
    assert main(["export", "a", "--torchscript", "best.pt", "--kept", "best"]) == 0
    assert Path("one.csv").read_text() != Path("final.csv").read_text()
    assert run.predict(diabetes().x, kept=1).probabilities.shape == (442, 1)
    capsys.readouterr()
    assert main(["predict", "a", "raw.npz", "--kept", "2"]) == 4
    assert "a round that checkpoint.models kept (1, best), but '2' is not" in capsys.readouterr().err
    assert main(["export-run", "a", "shared"]) == 0
    assert set(kept(load_run("shared"))) == set(kept(run))
    (run.folder / "checkpoints" / "models-1.safetensors").write_bytes(b"x")
    with pytest.raises(RunFolderError, match="is damaged: it is not as the run wrote it"):
        load_run(run.folder).models(kept=1)


def test_on_the_virtual_clock_those_of_evaluations_are_kept():
    run = simulate({**SMALL, **CLOCK, "checkpoint.models": "2"})
    assert run.status == "completed", run.reason
    assert set(kept(run)) == {"final", "models-2"}
    entries = [model["head.bias"] for model in (run.models(kept=2)[0], run.models()[0])]
    assert not np.array_equal(*entries)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"checkpoint.models": "1,,2"}, 'must be global rounds from 1 on, or "best"'),
        ({"checkpoint.models": "0"}, "but has '0'"),
        ({"checkpoint.models": "worst"}, "but has 'worst'"),
        ({"checkpoint.models": "9" * 40}, "must be global rounds"),
        ({"checkpoint.models": "5"}, "names round 5"),
        ({**CLOCK, "checkpoint.models": "best"}, "must name evaluations, not best"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_one_line(options, words):
    with pytest.raises(ConfigError) as refused:
        from_run_config({**SMALL, **options})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nothing_is_kept_by_default():
    assert set(kept(simulate({**SMALL, "num-server-rounds": 1}))) == {"final"}
