"""The device that train.device auto takes in process: settled once, said, recorded, and kept by a resume."""

import io

import pytest
import torch
from small_runs import small_config

from fedge import client_app
from fedge.cli import main
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.launch.run_device import settle_device
from fedge.launch.simulate import simulate
from fedge.process.resources.threads import available_cores
from fedge.records.manifest import read_manifest
from fedge.training.device_speeds import StepSpeeds, keep_speeds, setting
from fedge.training.networks.start import drawn_network

NINE = Federation(9, is_default=True)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def a_gpu(monkeypatch):
    """Let PyTorch see so many GPUs."""

    def see(count=1):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")

    return see


def measured(prepared, **speeds):
    """Let this machine remember speeds of a prepared run's network."""
    shape, train = prepared.shape, prepared.config.train
    model = drawn_network(train, 0, shape.input_shape, shape.classes, shape.y_shape, tokens=shape.tokens)
    keep_speeds(setting(model, shape.input_shape, train), StepSpeeds(**speeds))


def test_without_a_gpu_or_with_a_device_named_nothing_changes(tmp_path, a_gpu):
    options = small_config(tmp_path)
    a_gpu(0)
    assert settle_device(options, NINE, None, None) == (options, None)
    a_gpu()
    for device in ("cpu", "cuda"):
        given = {**options, "train.device": device}
        assert settle_device(given, NINE, None, None) == (given, None)


def test_a_small_network_takes_cores_by_the_rule_and_what_was_measured_counts_more(tmp_path, a_gpu):
    options = small_config(tmp_path)
    a_gpu()
    told, prepared = settle_device(options, NINE, None, None)
    assert told == {**options, "train.device": "cpu"}
    assert prepared.device["name"] == "cpu"
    assert "billion operations" in prepared.device["why"]
    measured(prepared, cores=10.0, plain=5.0, graph=20.0)
    told, prepared = settle_device(options, NINE, None, prepared)
    assert told["train.device"] == "cuda"
    assert prepared.device["why"].startswith("as fedge doctor --gpu measured here: ")
    assert options.get("train.device") is None


def test_a_run_with_fewer_workers_than_cores_counts_these(tmp_path, a_gpu, monkeypatch):
    monkeypatch.setattr("fedge.launch.run_device.available_cores", lambda: 4)
    a_gpu()
    _, prepared = settle_device(small_config(tmp_path), NINE, 2, None)
    assert "outdo 2 cores" in prepared.device["why"]
    _, prepared = settle_device(small_config(tmp_path), NINE, None, None)
    assert "outdo 4 cores" in prepared.device["why"]


@pytest.mark.parametrize(
    ("changes", "workers", "least"),
    [
        ({}, None, "0.32"),
        ({}, 1, "0.08"),
        ({}, 2, "1 "),  # threads that share a GPU record nothing
        ({"train.local-steps": 5}, None, "2 "),
        ({"train.cuda-graph": "off"}, None, "2 "),
    ],
)
def test_where_steps_are_recorded_fewer_operations_pay(tmp_path, a_gpu, monkeypatch, changes, workers, least):
    monkeypatch.setattr("fedge.launch.run_device.available_cores", lambda: 4)
    a_gpu()
    options = {**small_config(tmp_path), "train.batch-size": 2, "train.local-steps": 90, **changes}
    _, prepared = settle_device(options, NINE, workers, None)
    assert f"less than the {least.strip()} from which" in prepared.device["why"]
    assert prepared.deal.take()  # still there


def test_a_run_that_cannot_work_says_so_itself(tmp_path, a_gpu):
    a_gpu()
    options = {**small_config(tmp_path), "train.lr": -1.0}
    assert settle_device(options, NINE, None, None) == (options, None)


def test_it_is_said_and_recorded_and_a_resumed_run_keeps_its_device(tmp_path, a_gpu, capsys):
    """Whatever has been measured since."""
    a_gpu()
    config, terminal = small_config(tmp_path, run_name="run", num_server_rounds=1), io.StringIO()
    folder = simulate(config, terminal=terminal).folder
    manifest = read_manifest(folder)
    assert manifest["device"]["name"] == "cpu"
    assert (
        f"train.device auto: the CPU, since {manifest['device']['why']}" in terminal.getvalue().splitlines()
    )
    assert manifest["devices"] == {"cpu": 9}
    assert manifest["config"]["train.device"] == "auto"
    assert manifest["federation"]["workers"] == min(available_cores(), 9)
    measured(check(config | {"run-name": "other"}, NINE), cores=1.0, plain=900.0, graph=900.0)
    assert main(["resume", str(folder), "-c", "num-server-rounds=2"]) == 0
    shown = capsys.readouterr().out
    assert "train.device auto" not in shown
    assert "clients computed on" not in shown
    assert read_manifest(folder)["devices"] == {"cpu": 9}


def test_a_run_that_began_on_a_gpu_goes_on_on_one(tmp_path, a_gpu, monkeypatch):
    config = small_config(tmp_path, run_name="run", num_server_rounds=1)
    with monkeypatch.context() as machine:
        machine.setattr(client_app, "device_name", lambda _: "NVIDIA H100")
        folder = simulate(config, terminal=io.StringIO()).folder
    a_gpu()
    resumed = {**config, "run-name": "", "resume": str(folder), "num-server-rounds": 2}
    told, prepared = settle_device(resumed, NINE, None, None)
    assert told["train.device"] == "cuda"
    assert prepared.device == {}
