"""Server optimisers: momentum against PyTorch's, Adam by hand, what nobody trains left alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from virtual_world import carried_out, config_of, outcome

from fedge.config.registers.option import ConfigError
from fedge.devices.servers.arrivals import Arrival, Memory
from fedge.devices.servers.model_facts import ModelFacts
from fedge.devices.servers.rules import fedbuff
from fedge.devices.servers.stepping import next_model, refuse_server_optimizer
from fedge.devices.servers.vectors import version_of

numbers = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=6)


@given(updates=numbers, beta=st.floats(0, 0.95), lr=st.floats(0.01, 2))
def test_momentum_is_that_of_pytorch(updates, beta, lr):
    w, memory = np.array([0.25]), Memory(1)
    held = torch.tensor([0.25], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([held], lr=lr, momentum=beta)
    for update in updates:
        w = next_model(w, np.array([update]), memory, "momentum", lr, beta, 0.9, 1e-3)
        held.grad = torch.tensor([-update], dtype=torch.float64)
        optimizer.step()
        assert w[0] == pytest.approx(held.item(), rel=1e-12, abs=1e-12)


def test_adam_by_hand():
    """β = ½, β₂ = ¾, ε = 1: v = ¾ + ¼·4 = 1.75, m = 1; then v = 1.3125 + 0, m = ½ as d is 0."""
    w, memory = np.array([0.0]), Memory(1)
    w = next_model(w, np.array([2.0]), memory, "adam", 1.0, 0.5, 0.75, 1.0)
    first = 1 / (np.sqrt(1.75) + 1)
    assert w[0] == pytest.approx(first)
    w = next_model(w, np.array([0.0]), memory, "adam", 1.0, 0.5, 0.75, 1.0)
    assert w[0] == pytest.approx(first + 0.5 / (np.sqrt(1.3125) + 1))


def test_what_nobody_trains_gets_the_mean_itself():
    """The last number is a buffer's: its own update is added, whatever the optimiser."""
    network = torch.nn.BatchNorm1d(1)  # weight, bias; running mean and variance; a counter

    def facts():
        state = {name: each.numpy() for name, each in network.state_dict().items()}
        return ModelFacts(lambda: network, version_of(state), (1, 1), np.ones((1, 2)), 0, 0)

    for optimizer in ("momentum", "adam"):
        memory = Memory(1, facts=facts())
        found = next_model(np.zeros(4), np.array([1.0, 1, 1, 1]), memory, optimizer, 0.1, 0.5, 0.9, 1e-3)
        assert found[2:].tolist() == [1, 1]
        assert (np.abs(found[:2]) < 1).all()


def test_fedbuff_goes_by_the_weighted_mean():
    """As its doctest: d = (1·2 + ½·4) / 2 = 2, twice, with β = ½: 2 + 2, then 4 + 3."""
    w, memory = np.array([2.0]), Memory(2)
    for expected in (4.0, 7.0):
        given_ = {"buffer": 2, "optimizer": "momentum", "beta": 0.5}
        assert fedbuff(w, memory, Arrival(0, 0, w, w + 2), **given_) is None
        w = fedbuff(w, memory, Arrival(1, 3, np.array([0.0]), np.array([4.0])), **given_)
        assert w == pytest.approx([expected])


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_a_run_is_the_same_with_any_number_of_workers(optimizer):
    config = config_of(
        asynchrony__concurrency=4, devices__preset="half-normal", asynchrony__evaluate_every_s=2.0,
        asynchrony__rule_args=f'{{"buffer": 2, "optimizer": "{optimizer}", "lr": 0.1}}',
    )  # fmt: skip
    one, two = (outcome(*carried_out(config, 8, workers=workers)) for workers in (1, 2))
    assert one == two
    assert one["rows"][-1].version > 1


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        (("adm", 0.9, 0.9, 1e-3), "did you mean adam"),
        (("adam", 1.0, 0.9, 1e-3), "beta of a rule must be"),
        (("adam", 0.9, True, 1e-3), "beta2 of a rule must be"),
        (("adam", 0.9, 0.9, 0.0), "epsilon of a rule must be"),
    ],
)
def test_what_cannot_be_is_one_line(given_, words):
    with pytest.raises(ConfigError, match=words):
        refuse_server_optimizer(*given_)
