"""Files of a fleet: their sha256 is in the manifest, and a run goes on with the same ones alone."""

import hashlib
import io
import json

import pytest
from small_data import nine_users

from fedge import simulate
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.run.preparation.traces import described_traces

OFF = {"scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "report": False}
SPEEDS, THERE = "seconds_per_job\n0.5\n0.7\n", "device,from_s,until_s\na,0,3\nb,1,4\n"


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """Options of a run whose speeds and times are in files of the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "speeds.csv").write_text(SPEEDS)
    (tmp_path / "there.csv").write_text(THERE)
    return {
        **OFF, "clients": 4, "hierarchy.num-servers": 1, "asynchrony.rule": "fedasync",
        "asynchrony.concurrency": 2, "devices.preset": "trace",
        "devices.preset-args": '{"path": "speeds.csv"}', "devices.availability": "trace",
        "devices.availability-args": '{"path": "there.csv"}',
    }  # fmt: skip


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_files_are_described_by_the_options_that_name_them(fleet, tmp_path):
    assert described_traces(from_run_config(fleet)) == {
        "devices.preset-args.path": sha256(SPEEDS), "devices.availability-args.path": sha256(THERE)
    }  # fmt: skip
    assert described_traces(from_run_config(OFF)) == {}
    in_rounds = {**fleet, "asynchrony.rule": "off"}
    assert described_traces(from_run_config(in_rounds)) == {}
    timed = {**in_rounds, "devices.time-rounds": True}
    assert described_traces(from_run_config(timed))["devices.preset-args.path"] == sha256(SPEEDS)
    log = tmp_path / "before" / "devices" / "arrivals.csv"
    log.parent.mkdir(parents=True)
    log.write_text("job\n")
    for replay in (str(log), str(tmp_path / "before")):
        found = described_traces(from_run_config({**fleet, "asynchrony.replay": replay}))
        assert found["asynchrony.replay"] == sha256("job\n")


@pytest.mark.parametrize(
    ("option", "others"),
    [
        ("evaluate.common", {}),
        ("hierarchy.mobility-args.path", {"hierarchy.mobility": "trace"}),
        ("hierarchy.association-args.delays", {"hierarchy.association": "label-balance"}),
        ("train.model-args.weights", {}),
        ("partition.kind-args.table", {"partition.kind": "my_code:deal"}),
    ],
)
def test_any_file_that_an_option_names_is_described(tmp_path, monkeypatch, option, others):
    """Every round reads moves anew, and a resumed run assigns clients and tests models by the file again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_code.py").write_text("def deal(windows, clients_per_leaf, rng, table): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "file.csv").write_text(THERE)
    config = from_run_config({**OFF, **others, option: "file.csv"})
    assert described_traces(config) == {option: sha256(THERE)}


def test_a_prepared_set_of_common_test_windows_is_described_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "own.npz").write_text(THERE)
    for name, found in (("own", {"evaluate.common": sha256(THERE)}), ("test", {}), ("absent", {})):
        assert described_traces(from_run_config({**OFF, "evaluate.common": name})) == found


@pytest.mark.whole_runs
def test_a_run_does_not_go_on_with_other_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    moves = tmp_path / "moves.csv"
    moves.write_text("round,client,leaf\n2,0,1\n")
    options = {
        **OFF, "data.path": nine_users(), "train.model": "mlp-tiny", "train.local-epochs": 1, "clients": 9,
        "hierarchy.mobility": "trace", "hierarchy.mobility-args": '{"path": "moves.csv"}',
        "num-server-rounds": 1, "run-name": "first",
    }  # fmt: skip
    simulate(options, terminal=io.StringIO())
    moves.write_text("round,client,leaf\n2,0,2\n")
    with pytest.raises(ConfigError, match=r"mobility-args.path must be the file .* but it has changed"):
        simulate({**options, "num-server-rounds": 2, "resume": "first"}, terminal=io.StringIO())


@pytest.mark.whole_runs
def test_a_run_does_not_go_on_with_another_fleet(fleet, tmp_path):
    """Other speeds would begin at the round after the checkpoint, and nobody would know."""
    options = {
        **fleet, "data.path": nine_users(), "train.model": "mlp-tiny", "train.local-epochs": 1, "clients": 9,
        "asynchrony.evaluate-every-s": 1.0, "num-server-rounds": 2, "run-name": "first",
    }  # fmt: skip
    run = simulate(options, terminal=io.StringIO())
    traces = json.loads((run.folder / "manifest.json").read_text())["traces"]
    assert traces["devices.preset-args.path"] == sha256(SPEEDS)
    longer = {**options, "num-server-rounds": 3, "resume": "first"}
    (tmp_path / "speeds.csv").write_text(SPEEDS + "0.9\n")
    with pytest.raises(
        ConfigError, match=r"preset-args.path must be the file that .*first began with, but it has"
    ):
        simulate(longer, terminal=io.StringIO())
    (tmp_path / "speeds.csv").write_text(SPEEDS)
    (tmp_path / "there.csv").rename(tmp_path / "elsewhere.csv")
    with pytest.raises(ConfigError, match=r"availability-args.path must be"):
        simulate(longer, terminal=io.StringIO())
    (tmp_path / "elsewhere.csv").rename(tmp_path / "there.csv")
    assert simulate(longer, terminal=io.StringIO()).status == "completed"
