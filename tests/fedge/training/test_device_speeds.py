"""Cores or GPU: the rule by hand, operations by hand, and measurements that stay until anything changes."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedge.config.sections.train import TrainConfig
from fedge.process.resources.threads import available_cores
from fedge.training import device_speeds
from fedge.training.device_speeds import (
    FROM_GFLOP,
    RECORDED_FROM_GFLOP,
    StepSpeeds,
    TrainingPlaces,
    chosen_device,
    keep_speeds,
    recorded_speeds,
    setting,
    speeds_file,
    step_gflop,
    would_record,
)
from fedge.training.networks.models import build_model
from fedge.training.settings import LocalTraining

SPEEDS = StepSpeeds(cores=100.0, plain=150.0, graph=250.0)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def network(name="linear"):
    return build_model(name, (6, 32), 4, torch.Generator().manual_seed(0))


class Own(nn.Module):
    """A convolution of 2 to 3 channels and 5 taps over 8 samples, an LSTM of 4, a layer of 4 to 7."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(2, 3, 5, padding=2)
        self.second = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 7)

    def forward(self, x):
        return self.head(self.second(self.first(x).transpose(1, 2))[0][:, -1])


def test_operations_of_a_step_by_hand():
    """Two per product of a convolution, an LSTM's four gates and a layer; three such passes of a batch."""
    window = 2 * 8 * 3 * 2 * 5 + 2 * 8 * 4 * 4 * (3 + 4) + 2 * 4 * 7
    assert step_gflop(Own(), (2, 8), 10, tokens=False) == pytest.approx(3 * 10 * window / 1e9)


def test_of_tokens_and_of_networks_that_cannot_be_tried():
    class Words(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))

    assert step_gflop(Words(), (5,), 2, tokens=True) == pytest.approx(3 * 2 * 2 * 20 * 3 / 1e9)
    assert step_gflop(Words(), (5,), 2, tokens=False) is None


@pytest.mark.parametrize(
    ("cores", "gpus", "gflop", "expected"),
    [
        (16, 1, 0.55, "cpu"),  # the networks of the table in docs/gpu.md, on its machine
        (16, 1, 0.35, "cpu"),
        (16, 1, 24.3, "cuda"),
        (16, 1, 19.3, "cuda"),
        (1, 1, 0.55, "cuda"),
        (1, 1, 0.35, "cpu"),
        (4, 1, 2.0, "cuda"),
        (4, 1, 1.99, "cpu"),
        (4, 2, 1.0, "cuda"),
        (4, 2, 0.99, "cpu"),
        (4, 1, None, "cuda"),
    ],
)
def test_without_a_measurement_a_gpu_needs_so_many_operations_per_core(cores, gpus, gflop, expected):
    assert FROM_GFLOP == 0.5
    device, why = chosen_device(TrainingPlaces(cores, gpus), gflop, None)
    assert device == expected
    assert ("cannot be counted" in why) is (gflop is None)


@pytest.mark.parametrize(
    ("cores", "gflop", "expected"),
    [
        (
            16,
            0.55,
            "cpu",
        ),  # the networks of the second table in docs/gpu.md: 1,921 steps a second on 16 cores
        (4, 0.55, "cuda"),
        (2, 0.35, "cuda"),
        (1, 0.001, "cpu"),
        (4, 0.32, "cuda"),
        (4, 0.319, "cpu"),
    ],
)
def test_recorded_steps_pay_from_fewer_operations_on(cores, gflop, expected):
    assert RECORDED_FROM_GFLOP == 0.08
    device, why = chosen_device(TrainingPlaces(cores, 1), gflop, None, is_recorded=True)
    assert device == expected
    assert f"the {0.08 * cores:.3g} from which" in why


class Odd(nn.Module):
    """Names an array of its own as layers name their probability."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Parameter(torch.ones(3))


@pytest.mark.parametrize(
    ("make", "epochs", "steps", "graph", "expected"),
    [
        (lambda: network("cnn"), 3, 0, True, True),  # ten batches each
        (lambda: network("cnn"), 2, 0, True, False),
        (lambda: network("cnn"), 1, 33, True, True),
        (lambda: network("cnn"), 3, 0, False, False),
        (lambda: nn.Sequential(network(), nn.Dropout(0.1)), 3, 0, True, False),
        (lambda: nn.Sequential(network(), nn.Dropout(0.0)), 3, 0, True, True),
        (lambda: nn.LSTM(6, 4, 2, dropout=0.1), 3, 0, True, False),
        (lambda: nn.LSTM(6, 4), 3, 0, True, True),
        (lambda: nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0), 3, 0, True, True),
        (lambda: nn.TransformerEncoderLayer(8, 2, 8, dropout=0.1), 3, 0, True, False),
        (lambda: nn.MultiheadAttention(8, 2, dropout=0.1), 3, 0, True, False),
        (Odd, 3, 0, True, True),
        (lambda: nn.Conv1d(6, 6, 5), 3, 0, True, False),
        (lambda: nn.Conv2d(3, 6, 5), 3, 0, True, True),
    ],
)
def test_steps_that_a_gpu_would_record(make, epochs, steps, graph, expected):
    settings = LocalTraining(lr=0.1, epochs=epochs, steps=steps, batch_size=32, cuda_graph=graph)
    assert would_record(make(), settings, 325) is expected


def test_a_measurement_counts_more_than_the_rule_for_the_cores_and_gpus_that_a_run_has():
    cores = available_cores()
    assert chosen_device(TrainingPlaces(cores, 1), 0.0, SPEEDS)[0] == "cuda"
    assert chosen_device(TrainingPlaces(cores, 1), 99.0, replace(SPEEDS, cores=251.0))[0] == "cpu"
    assert chosen_device(TrainingPlaces(cores, 2), 99.0, replace(SPEEDS, cores=251.0))[0] == "cuda"
    assert (
        chosen_device(TrainingPlaces(cores, 1), 99.0, replace(SPEEDS, plain=300.0, cores=280.0))[0] == "cuda"
    )
    _, why = chosen_device(TrainingPlaces(cores, 2), 99.0, SPEEDS)
    assert why == "as fedge doctor --gpu measured here: 100 steps per second on cores, 500 on 2 GPUs"


def test_a_run_of_fewer_clients_than_cores_has_a_share_of_their_speed(monkeypatch):
    monkeypatch.setattr(device_speeds, "available_cores", lambda: 8)
    assert chosen_device(TrainingPlaces(8, 1), None, StepSpeeds(800.0, 300.0, 300.0))[0] == "cpu"
    assert chosen_device(TrainingPlaces(2, 1), None, StepSpeeds(800.0, 300.0, 300.0))[0] == "cuda"


def test_a_measurement_is_found_again_until_network_options_or_machine_change(monkeypatch):
    config = TrainConfig()
    about = setting(network(), (6, 32), config)
    assert recorded_speeds(about) is None
    keep_speeds(about, SPEEDS)
    assert recorded_speeds(setting(network(), (6, 32), TrainConfig())) == SPEEDS
    changes = (("batch_size", 16), ("precision", "bf16"), ("kernel", "torch"), ("threads", 2))
    others = [setting(network(), (6, 32), replace(config, **{name: value})) for name, value in changes]
    others += [setting(network("cnn"), (6, 32), config), setting(network(), (6, 33), config)]
    monkeypatch.setattr(device_speeds, "versions", lambda: {"fedge": "9", "torch": torch.__version__})
    others.append(setting(network(), (6, 32), config))
    monkeypatch.undo()
    for other in others:
        assert other != about
        assert recorded_speeds(other) is None


def test_a_new_measurement_replaces_the_old_and_the_oldest_go():
    for number in range(210):
        keep_speeds({"number": number}, SPEEDS)
    keep_speeds({"number": 209}, replace(SPEEDS, cores=1.0))
    assert recorded_speeds({"number": 209}) == replace(SPEEDS, cores=1.0)
    assert recorded_speeds({"number": 0}) is None
    assert len(json.loads(speeds_file().read_text())) == 200
    assert speeds_file().parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "damage",
    [
        "", "[]", "nonsense", '{"KEY": 3}', '{"KEY": {"cores": 1.0, "plain": 2.0}}', "[" * 100_000,
        '{"KEY": {"cores": true, "plain": 2.0, "graph": 1.0}}', " " * 2**21,
        '{"KEY": {"cores": NaN, "plain": 2.0, "graph": 1.0}}',
        '{"KEY": {"cores": 0.0, "plain": 2.0, "graph": 1.0}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_as_none_and_is_replaced(damage):
    about = {"network": "n"}
    keep_speeds(about, SPEEDS)
    (key,) = json.loads(speeds_file().read_text())
    speeds_file().write_text(damage.replace("KEY", key))
    assert recorded_speeds(about) is None
    keep_speeds(about, SPEEDS)
    assert recorded_speeds(about) == SPEEDS


def test_where_nothing_can_be_written_nothing_is_kept(state, monkeypatch):
    (state / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(state / "file"))
    keep_speeds({"a": 1}, SPEEDS)
    assert recorded_speeds({"a": 1}) is None
