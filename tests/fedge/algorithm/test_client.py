"""A client in the hands of a method's author: what `fit` and its kin take, and refuse in one line."""

import numpy as np
import pytest
import torch
from torch import nn

from fedge.algorithm.algorithm import Algorithm, Sent
from fedge.algorithm.client import Client, Place
from fedge.algorithm.client_round import plain_training, run_algorithm
from fedge.config.registers.option import ConfigError
from fedge.training.kernels import native_plan
from fedge.training.networks.module_state import get_state
from fedge.training.settings import LocalTraining


class Net(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(torch.relu(self.base(x)))


def client(**settings):
    torch.manual_seed(0)
    x, y = torch.randn(12, 4), torch.arange(12) % 2
    network = Net()
    plain = plain_training(network, x, y)
    return Client(get_state(network), x, y, network, LocalTraining(**settings), Place(1, (1,)), plain)


def fitted(**arguments):
    return client(lr=0.1, batch_size=4).fit(**arguments)


def same(one, other):
    return all((one.state[name] == other.state[name]).all() for name in one.state)


def loss(network, x, y):
    return nn.functional.cross_entropy(network(x), y)


@pytest.mark.parametrize(
    ("arguments", "telling"),
    [
        ({"epoch": 1}, "no setting 'epoch'; did you mean epochs?"),
        ({"learning_rate": 1}, "no setting 'learning_rate'; it has lr, momentum"),
        ({"epochs": 1.0}, "epochs must be a whole number, but is 1.0"),
        ({"epochs": True}, "epochs must be a whole number, but is True"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"epochs": None}, "epochs must be a whole number, but is None"),
        ({"steps": 2.0}, "steps must be a whole number, but is 2.0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"steps": -1}, "steps must be non-negative, got -1"),
        ({"lr": "0.1"}, "lr must be a number, but is '0.1'"),
        ({"lr": np.ones(2)}, "lr must be a number"),
        ({"weight_decay": None}, "weight_decay must be a number, but is None"),
        ({"task": "regression"}, "task must be a Task"),
        ({"optimizer": "adamm"}, "did you mean adam?"),
        ({"optimizer": 3}, "optimizer must be a text, but is 3"),
        ({"kernel": "fast"}, "kernel must be one of torch, but is 'fast'"),
        ({"precision": "fp16"}, "precision must be one of bf16, float32, tf32, but is 'fp16'"),
        ({"start": 5}, "start must be a model's entries"),
        ({"start": Net()}, "start must be a model's entries"),
        ({"only": "head"}, "only must be a list of names, as client.head, but is 'head'"),
        ({"only": 1}, "only must be a list of names"),
        ({"only": []}, "only must name parameters that train, but has none"),
        ({"only": ["hed"]}, "only must name parameters that train, but has 'hed'"),
        ({"pull": 0.1}, "pull must be"),
        ({"pull": ({}, 0.1)}, "pull must be"),
        ({"pull": (0.1, {}, {})}, "pull must be"),
        ({"pull": [(0.1,)]}, "pull must be"),
        ({"pull": (0.1, {"head.wight": np.zeros(1)})}, "did you mean head.weight?"),
        ({"pull": (-0.1, {})}, "a pull must be at least 0"),
        ({"loss": lambda network, x, y: 1.0}, "has no gradient"),
        ({"loss": lambda network, x, y: network(x).detach().mean()}, "has no gradient"),
        ({"loss": lambda network, x, y: network(x)[:, 0]}, r"one number for a batch.*shape \(4,\)"),
        ({"loss": lambda network, x, y: None}, "one number for a batch.*None"),
        ({"penalty": lambda network, x, y: None}, "one number for a batch.*None"),
        ({"penalty": lambda network, x, y: network(x)[:, 0]}, "one number for a batch"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_call_is_one_line_of_fedges_own(arguments, telling):
    with pytest.raises((TypeError, ValueError, ConfigError), match=telling) as found:
        fitted(**arguments)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"lr": np.float64(0.2)}, {"lr": 0.2}),
        ({"lr": torch.tensor(0.25)}, {"lr": 0.25}),
        ({"epochs": np.int64(2)}, {"epochs": 2}),
        ({"steps": np.int64(2)}, {"steps": 2}),
        ({"only": (name for name in ["head.weight"])}, {"only": ["head.weight"]}),
        ({"penalty": lambda network, x, y: 0.0}, {"penalty": lambda network, x, y: torch.zeros(())}),
        ({"penalty": lambda network, x, y: np.float32(0)}, {"penalty": lambda network, x, y: 0}),
        ({"loss": lambda *batch: loss(*batch).reshape(1)}, {"loss": loss}),
    ],
)
def test_values_of_other_kinds_mean_the_same(given, meant):
    assert same(fitted(**given), fitted(**meant))


@pytest.mark.parametrize("strength", [0.5, np.float32(0.5), torch.tensor(0.5), np.array(0.5)])
def test_a_pull_is_a_pair_or_several_in_any_sequence(strength):
    to = {name: 0 * array for name, array in client().received.items()}
    wanted = fitted(pull=(0.5, to))
    assert same(fitted(pull=(strength, to)), wanted)
    assert same(fitted(pull=[strength, to]), wanted)
    assert same(fitted(pull=(pair for pair in [(strength, to)])), wanted)
    assert not same(fitted(), wanted)


@pytest.mark.parametrize("name", ["adam", "adamw", "torch.optim:NAdam"])
def test_another_optimiser_trains_whatever_the_kernel(name):
    """The native step knows SGD alone, and took no notice of another."""
    made = client(lr=0.1, batch_size=4, kernel="auto")
    if native_plan(made.network, (4,), "auto", "float32", False) is None:
        pytest.skip("no native step for this network")
    found = made.fit(optimizer=name)
    assert same(found, client(lr=0.1, batch_size=4, kernel="torch").fit(optimizer=name))
    assert not same(found, client(lr=0.1, batch_size=4).fit())


def test_another_optimiser_begins_without_the_arguments_of_the_runs():
    made = client(lr=0.1, optimizer="adamw", optimizer_args=(("betas", (0.5, 0.5)),), batch_size=4)
    assert same(made.fit(optimizer="sgd"), fitted())


@pytest.mark.parametrize("arguments", [{"learning_rate": 0.1}, {"lr": "0.1"}, {"only": "head"}])
def test_a_trainer_refuses_the_same(arguments):
    with pytest.raises(TypeError, match=r"no setting|must be a number|must be a list"):
        client().trainer(client().received, **arguments)


def test_batches_of_half_an_epoch_are_refused():
    with pytest.raises(TypeError, match=r"epochs must be a whole number, but is 1\.5"):
        list(client().batches(epochs=1.5))


class Sends(Algorithm):
    """Sends some of its entries."""

    def __init__(self, only):
        self.only = only

    def train(self, client):
        return Sent(client.fit(), only=self.only)


def test_a_text_is_no_list_of_entries_to_send():
    with pytest.raises(TypeError, match=r"only must be a list of names, as client\.head, but is 'head'"):
        run_algorithm(Sends("head"), client(), None)
    assert set(run_algorithm(Sends(name for name in ["head.bias"]), client(), None).sent) == {"head.bias"}


def test_a_network_can_be_copied_while_its_features_are_recorded():
    """A recorder holds the last batch, which has no copy; that of the copy begins without one."""
    one = client()
    recorder = one.features(one.network)
    one.network(one.x)
    copied = one.network_with(one.received)
    trainer = one.trainer(one.received)
    assert copied(one.x).detach().numpy().tobytes() == trainer.answers(one.x).detach().numpy().tobytes()
    assert recorder.last.shape == (12, 3)
    recorder.close()
