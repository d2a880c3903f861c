"""Trackers with the real libraries: what they hold is what the run's own tables hold, each round once."""

import csv
import dataclasses
import importlib
import io
import json
import shutil
import socket
import sqlite3
import sys
import time
from contextlib import closing

import pytest

from fedge import simulate
from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import TRACKERS
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.rounds.measurements.results import ModelResult
from fedge.trackers.tracker import refuse_missing_extra
from fedge.trackers.tracking import STATE, Tracking, params_of, round_numbers

pytestmark = pytest.mark.whole_runs

KINDS = [kind for kind in TRACKERS.names if kind != "none"]
QUICK = {
    "report": False,
    "data.path": "synthetic",
    "train.model": "linear",
    "train.local-epochs": 1,
    "num-server-rounds": 3,
    "checkpoint.keep": 9,
    "seed": 7,
}
MANIFEST = {
    "config": {"num-server-rounds": 3, "train.lr": 0.5, "run-name": "x", "tracker": "mlflow", "seed": 1},
    "seed": 7,
    "engine": "inprocess",
    "versions": {"fedge": "0.1.0"},
    "clients_per_leaf": [2, 1],
    "data": {"name": "tiny.npz", "fingerprint": "0123456789abcdef"},
}


@pytest.fixture(scope="module")
def empty_mlflow(tmp_path_factory):
    """A folder with MLflow's tables, which take it seconds to make."""
    installed("mlflow")
    from fedge.trackers import to_mlflow

    folder = tmp_path_factory.mktemp("mlflow") / to_mlflow.FOLDER
    folder.mkdir()
    to_mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    return folder


def installed(kind):
    """Skip a test whose tracker is not installed."""
    pytest.importorskip(kind, reason=f"no {kind}: pip install -c constraints.txt -e '.[{kind}]'")


# --- what each of them holds --------------------------------------------------------------------------


def held_by_tensorboard(folder):
    """Name → [(step, value), …] of all event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(
        str(folder / "tensorboard"), size_guidance={"scalars": 0}, purge_orphaned_data=False
    )
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def records_of_wandb(folder):
    """All records of all offline runs, oldest first."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    found = []
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        store = DataStore()
        store.open_for_scan(str(path))
        while data := store.scan_data():
            record = Record()
            record.ParseFromString(data)
            found.append(record)
    return found


def held_by_wandb(folder):
    """Name → [(step, value), …] of all offline runs."""
    found = {}
    for record in records_of_wandb(folder):
        row = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
        }
        for name, value in row.items():
            found.setdefault(name, []).append((row.get("_step"), value))
    return found


def run_of_mlflow(folder):
    """Client and run of the only run in MLflow's database."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow/mlflow.db")
    (experiment,) = (e for e in client.search_experiments() if e.name == "fedge")
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def held_by_mlflow(folder):
    """Name → [(step, value), …]."""
    client, run = run_of_mlflow(folder)
    return {
        name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }


HELD = {"tensorboard": held_by_tensorboard, "wandb": held_by_wandb, "mlflow": held_by_mlflow}


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def in_tables(folder):
    """Numbers of the run's tables, under the names that trackers get."""
    found = {}
    for row in rows(folder / "metrics" / "global_rounds.csv"):
        for column in ("test_accuracy_mean", "test_accuracy_worst", "num_clusters", "uplink_bytes"):
            found.setdefault(f"global/{column}", []).append((int(row["global_round"]), float(row[column])))
    for row in rows(folder / "metrics" / "leaf_rounds.csv"):
        for column in ("test_accuracy", "cluster", "val_accuracy_own"):
            name = f"leaf-{row['leaf']}/{column}"
            found.setdefault(name, []).append((int(row["global_round"]), float(row[column])))
    return found


@pytest.mark.parametrize(
    "kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.extended) for kind in KINDS[1:])]
)
def test_a_tracker_holds_every_round_once_also_of_a_run_that_went_on(tmp_path, monkeypatch, kind):
    """Three rounds; then on from round 2 to round 5: round 3 is done again and must not be there twice."""
    installed(kind)
    for name in ("WANDB_MODE", "WANDB_DIR", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    config = {**QUICK, "tracker": kind, "runs-dir": str(tmp_path)}
    terminal = io.StringIO()
    folder = simulate(config, terminal=terminal).folder
    shutil.rmtree(folder / "checkpoints" / "round-000003")
    again = {**config, "resume": str(folder), "num-server-rounds": 5}
    assert simulate(again, terminal=terminal).status == "completed"
    assert f"tracker {kind}" not in terminal.getvalue()
    held, expected = HELD[kind](folder), in_tables(folder)
    assert len(expected) == 4 + 3 * 3
    for name, values in expected.items():
        assert [step for step, _ in values] == [1, 2, 3, 4, 5]
        assert [step for step, _ in held[name]] == [1, 2, 3, 4, 5], name
        assert [value for _, value in held[name]] == pytest.approx([value for _, value in values], rel=1e-6)
    seconds = [value for _, value in held["global/seconds"]]
    assert min(seconds) > 0
    assert json.loads((folder / STATE).read_text())[kind]["global_round"] == 5


def test_tensorboard_has_the_options_as_hparams(tmp_path):
    installed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracking = Tracking("tensorboard", tmp_path)
    tracking.start(MANIFEST)
    assert tracking.finish("completed", 0, 60.0) == []
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    content = events.PluginTagToContent("hparams")
    assert set(content) == {
        "_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info",
    }  # fmt: skip
    start = content["_hparams_/session_start_info"]
    assert b"train.lr" in start
    assert b"run-name" not in start


def test_mlflow_has_params_tags_and_status(tmp_path, make_result, empty_mlflow):
    shutil.copytree(empty_mlflow, tmp_path / "mlflow")
    tracking = Tracking("mlflow", tmp_path)
    tracking.start(MANIFEST)
    assert tracking.observe(make_result(), 2.5) == []
    assert tracking.finish("failed", 130, 60.0) == []
    assert tracking.finish("completed", 0, 60.0) == []  # the first end counts
    _, run = run_of_mlflow(tmp_path)
    assert run.data.params == {key: str(value) for key, value in params_of(MANIFEST).items()}
    assert run.info.status == "KILLED"
    assert run.info.run_name == tmp_path.name
    assert (run.data.tags["status"], run.data.tags["exit_code"]) == ("failed", "130")
    assert run.data.metrics["global/seconds"] == 2.5


def test_wandb_is_offline_unless_the_user_says_otherwise(tmp_path, monkeypatch):
    installed("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    tracking = Tracking("wandb", tmp_path)
    tracking.start(MANIFEST)
    assert tracking.finish("partial", 3, 60.0) == []
    deadline = time.monotonic() + 30  # wandb's own process writes on for a moment
    while True:
        records = records_of_wandb(tmp_path)
        config = {
            item.key: json.loads(item.value_json)
            for r in records
            for item in (*r.run.config.update, *r.config.update)
        }
        if config.keys() >= params_of(MANIFEST).keys() or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert {key: config.get(key) for key in params_of(MANIFEST)} == params_of(MANIFEST)
    assert [r.exit.exit_code for r in records if r.HasField("exit")] == [0]
    monkeypatch.setenv("WANDB_MODE", "disabled")
    other = tmp_path / "other"
    other.mkdir()
    tracking = Tracking("wandb", other)
    tracking.start(MANIFEST)
    assert tracking.finish("completed", 0, 60.0) == []
    assert not list(other.glob("wandb/offline-run-*"))


# --- names --------------------------------------------------------------------------------------------


def test_the_numbers_of_a_round_by_hand(make_result):
    """Accuracies 0.5 and 1.0; leaf 1 was not evaluated, so it has neither accuracy nor loss nor F1."""
    numbers = round_numbers(make_result(), 2.5)
    assert numbers["global/test_accuracy_mean"] == 0.75
    assert numbers["global/test_accuracy_worst"] == 0.5
    assert numbers["global/num_clusters"] == 2
    assert (numbers["global/gate_accepted"], numbers["global/gate_rejected"]) == (1, 1)
    assert numbers["global/seconds"] == 2.5
    assert {name: value for name, value in numbers.items() if name.startswith("leaf-1")} == {
        "leaf-1/cluster": 1, "leaf-1/val_accuracy_own": 0.5, "leaf-1/val_accuracy_offered": 0.75,
        "leaf-1/kept_model": 0, "leaf-1/unseen_clients": 0,
    }  # fmt: skip
    assert all(type(value) is float for value in numbers.values())


def test_own_models_of_clients_are_tracked_as_their_spread(make_result):
    """Two clients with scores .5 and 1, an unseen one with .25."""
    models = [
        ModelResult(0, 0, "personal", 10, 0.5, 1.0), ModelResult(1, 0, "personal", 10, 1.0, 1.0),
        ModelResult(2, 1, "personal", 10, 0.25, 1.0, unseen_client=True),
    ]  # fmt: skip
    numbers = round_numbers(dataclasses.replace(make_result(), models=models), 2.5)
    assert {name: value for name, value in numbers.items() if name.startswith("own-")} == {
        "own-personal/test_accuracy_mean": 0.75, "own-personal/test_accuracy_std": 0.25,
        "own-personal/test_accuracy_worst": 0.5, "own-personal-unseen/test_accuracy_mean": 0.25,
        "own-personal-unseen/test_accuracy_std": 0.0, "own-personal-unseen/test_accuracy_worst": 0.25,
    }  # fmt: skip


def test_the_params_of_a_run_by_hand():
    assert params_of(MANIFEST) == {
        "num-server-rounds": 3, "train.lr": 0.5, "seed": 7, "engine": "inprocess", "fedge": "0.1.0",
        "clients-per-leaf": "2,1", "data.name": "tiny.npz", "data.fingerprint": "0123456789ab",
    }  # fmt: skip


# --- what can go wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_extra_is_one_line_before_anything_starts(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.setitem(sys.modules, kind, None)  # as if it were not installed
    with pytest.raises(ConfigError) as caught:
        check({"tracker": kind}, Federation(9))
    assert str(caught.value) == (
        f'tracker is "{kind}", but the package {kind} is not installed; '
        f"pip install 'fedge[{kind}]', or set tracker=\"none\""
    )
    assert main(["run", "-c", f"tracker='{kind}' runs-dir='{tmp_path / 'runs'}'"]) == 4
    assert capsys.readouterr().err == f"fedge: {caught.value}\n"
    assert not (tmp_path / "runs").exists()


def test_no_tracker_needs_no_package_and_leaves_nothing(tmp_path, make_result):
    refuse_missing_extra("none")
    tracking = Tracking("none", tmp_path)
    tracking.start(MANIFEST)
    assert tracking.observe(make_result(), 1.0) == tracking.finish("completed", 0, 1.0) == []
    assert list(tmp_path.iterdir()) == []


def test_each_extra_has_its_adapter():
    text = (importlib.resources.files("fedge").parent / "pyproject.toml").read_text()
    for kind in KINDS:
        assert f"\n{kind} = [" in text
        assert importlib.util.find_spec(f"fedge.trackers.to_{kind}") is not None


def test_a_server_that_is_not_there_is_said_once_and_the_run_is_done(tmp_path, monkeypatch):
    """The tracker fails while it is opened; the results have the bytes of a run without it."""
    installed("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    terminal = io.StringIO()
    outcome = simulate({**QUICK, "tracker": "mlflow", "runs-dir": str(tmp_path)}, terminal=terminal)
    assert outcome.status == "completed"
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    said = [line for line in manifest["remarks"] if line.startswith("tracker mlflow failed")]
    assert len(said) == 1
    assert "127.0.0.1" in said[0]
    assert terminal.getvalue().count(said[0]) == 1
    assert "Traceback" in (outcome.folder / "run.log").read_text()
    assert "Traceback" not in terminal.getvalue()
    without = simulate({**QUICK, "runs-dir": str(tmp_path)}, terminal=terminal).folder
    for name in ("metrics/leaf_rounds.csv", "clusters.jsonl", "checkpoints/final.safetensors"):
        assert (outcome.folder / name).read_bytes() == (without / name).read_bytes()


def test_a_tracker_that_fails_in_the_middle_is_said_once(tmp_path, make_result, empty_mlflow):
    shutil.copytree(empty_mlflow, tmp_path / "mlflow")
    tracking = Tracking("mlflow", tmp_path)
    tracking.start(MANIFEST)
    assert tracking.observe(make_result(global_round=1), 1.0) == []
    deadline = time.monotonic() + 60
    while not in_mlflow(tmp_path / "mlflow" / "mlflow.db"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (tmp_path / "mlflow" / "mlflow.db").write_bytes(b"no database" * 1000)
    said = []
    for number in range(2, 200):
        said += tracking.observe(make_result(global_round=number), 1.0)
        if said:
            break
        time.sleep(0.1)
    assert len(said) == 1
    assert said[0].startswith("tracker mlflow failed and the run continues without it: ")
    assert "\n" not in said[0]
    assert tracking.observe(make_result(global_round=300), 1.0) == []
    assert tracking.finish("completed", 0, 10.0) == []


def in_mlflow(database):
    """Number of values in MLflow's database."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        return connection.execute("SELECT COUNT(*) FROM metrics").fetchone()[0]


def test_a_tracker_that_hangs_holds_up_nothing(tmp_path, monkeypatch, make_result):
    """A server that takes the connection and never answers."""
    installed("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        tracking = Tracking("mlflow", tmp_path)
        began = time.monotonic()
        tracking.start(MANIFEST)
        assert tracking.observe(make_result(), 1.0) == []
        (line,) = tracking.finish("completed", 0, 0.5)
        assert time.monotonic() - began < 18  # the server's silence ends after 20
    assert line.endswith("not done 0.5 s after the run; see run.log")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"tensorboard": 3}', b"\xff", b'{"tensorboard": {"id": 1}}']
)
def test_a_damaged_state_file_is_begun_anew(tmp_path, content, make_result):
    installed("tensorboard")
    (tmp_path / STATE).write_bytes(content)
    tracking = Tracking("tensorboard", tmp_path)
    tracking.start(MANIFEST)
    tracking.observe(make_result(), 1.0)
    assert tracking.finish("completed", 0, 60.0) == []
    assert json.loads((tmp_path / STATE).read_text())["tensorboard"]["global_round"] == 1
