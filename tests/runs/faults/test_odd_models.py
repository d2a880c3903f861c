"""Networks of odd kinds in whole runs: the same bits on any number of workers, or refused before training."""

import io
import sys

import numpy as np
import pytest
import torch
from small_runs import small_config
from torch import nn
from torch.nn.utils import parametrizations

from fedge import simulate
from fedge.cli import main
from fedge.config.registers.option import ConfigError


class Odd(nn.Module):
    """Two layers, the first of a kind that is asked for."""

    def __init__(self, input_shape, classes, kind):
        super().__init__()
        size = input_shape[0] * input_shape[1]
        linear = nn.Linear(size, 8)
        self.kind = kind
        self.calls = 0
        self.head = nn.Linear(8, classes)
        self.body = {
            "weight-norm": lambda: parametrizations.weight_norm(linear),
            "spectral-norm": lambda: parametrizations.spectral_norm(linear),
            "frozen": lambda: linear.requires_grad_(False),
            "batch-norm": lambda: nn.Sequential(linear, nn.BatchNorm1d(8)),
            "dropout": lambda: nn.Sequential(linear, nn.Dropout(0.5), nn.LayerNorm(8)),
        }.get(kind, lambda: linear)()
        if kind == "tied":
            self.again = self.body
        if kind == "buffers":
            self.register_buffer("mask", torch.ones(8, dtype=torch.bool))
            self.register_buffer("windows", torch.zeros((), dtype=torch.int64))
            self.register_buffer("wide", torch.zeros(2, dtype=torch.float64))

    def forward(self, x):
        if self.kind == "buffers" and self.training:
            self.windows += len(x)
        self.calls += 1  # of this object, which a thread lends to many clients
        scale = 1 + 0.1 * self.calls if self.kind == "counts" else 1.0
        return self.head(self.body(scale * x.flatten(1)))


KINDS = ["weight-norm", "spectral-norm", "tied", "buffers", "frozen", "dropout", "batch-norm", "counts"]


@pytest.mark.parametrize("kind", KINDS)
def test_odd_networks_have_the_same_bits_on_any_number_of_workers(tmp_path, kind):
    config = small_config(tmp_path, num_server_rounds=1, train__model_args__kind=kind)
    runs = [simulate(config, model=Odd, workers=n, terminal=io.StringIO()) for n in (1, 3)]
    assert [run.status for run in runs] == ["completed", "completed"], runs[0].reason
    first, second = [(run.folder / "checkpoints/final.safetensors").read_bytes() for run in runs]
    assert first == second
    windows = (
        np.random.default_rng(0)
        .normal(size=(2, *runs[0].opened_models().card.input_shape))
        .astype(np.float32)
    )
    assert np.allclose(runs[0].predict(windows).probabilities.sum(axis=1), 1)


def test_a_last_batch_of_one_is_refused_where_the_model_cannot_train_on_it(tmp_path):
    """Eight training windows: seven and one."""
    config = small_config(tmp_path, train__batch_size=7, num_server_rounds=1)
    words = r"^train\.batch-size must leave no last batch of one window, .* but is 7 and client 0 "
    "has 8 .*ValueError"
    with pytest.raises(ConfigError, match=words):
        simulate({**config, "train.model-args.kind": "batch-norm"}, model=Odd, terminal=io.StringIO())
    with pytest.raises(ConfigError, match=words):
        simulate({**config, "train.model": "mlp-tiny"}, terminal=io.StringIO())
    assert (
        simulate({**config, "train.model-args.kind": "tied"}, model=Odd, terminal=io.StringIO()).exit_code
        == 0
    )


@pytest.mark.parametrize("rule", ["FedProx", "FedAvg", "FedYogi", "Krum", "FedMedian"])
def test_flowers_strategies_work_by_name(tmp_path, rule):
    config = small_config(
        tmp_path,
        scaffold__enabled=False,
        leaf__strategy=f"flwr.serverapp.strategy:{rule}",
        num_server_rounds=1,
    )
    assert simulate(config, terminal=io.StringIO()).status == "completed"


def test_a_project_below_runs_and_goes_on_and_is_used_from_above_it(tmp_path, monkeypatch, capsys):
    """`fedge run my-study` from the folder above; its network is found on resume and by predict."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["new", "odd-study"]) == 0
    config = small_config(tmp_path, run_name="a", num_server_rounds=1)
    del config["train.model"]
    words = " ".join(f"{key}={value!r}".replace("False", "false") for key, value in config.items())
    assert main(["run", "odd-study", "-c", words]) == 0
    for name in [name for name in sys.modules if name.startswith("odd_study")]:
        sys.modules.pop(name)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "odd-study" not in path])
    monkeypatch.setattr("fedge.config.registers.register._looked_in", [])
    folder = str(tmp_path / "runs" / "a")
    assert main(["resume", folder, "-c", "num-server-rounds=2"]) == 0
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 2, 16), np.float32))
    capsys.readouterr()
    assert main(["predict", folder, "x.npz"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
