"""Methods that train the worker's network by steps of their own: the same bits whoever was there before."""

import io

import pytest
import torch
from small_runs import small_config

from fedge import simulate
from fedge.algorithm import Algorithm, Fit, Sent

pytestmark = pytest.mark.whole_runs


class OwnSteps(Algorithm):
    """A loop over `client.network`, as in any tutorial; it leaves behind what it is told."""

    def __init__(self, leaves="", copies=True):
        self.leaves, self.copies = leaves, copies

    def train(self, client):
        network = client.network
        assert network.training
        optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.05)
        for x, y in client.batches():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(x), y)
            loss.backward()
            optimizer.step()
        found = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
        state = {name: array.copy() for name, array in found.items()} if self.copies else found
        if self.leaves == "frozen":
            next(network.parameters()).requires_grad_(False)
        if self.leaves == "hook":
            network.register_forward_hook(lambda network, inputs, answer: answer * 0.5)
        if self.leaves == "evaluating":
            network.eval()
        if self.leaves == "weights":
            with torch.no_grad():
                next(network.parameters()).zero_()
        return Fit(state, loss.item(), 1)


def final(tmp_path, workers, **arguments):
    config = small_config(
        tmp_path, num_server_rounds=2, train__model="mlp-tiny", scaffold__enabled=False,
        **{f"train__algorithm_args__{key}": value for key, value in arguments.items()},
    )  # fmt: skip
    run = simulate(config, algorithm=OwnSteps, workers=workers, terminal=io.StringIO())
    assert run.status == "completed", run.reason
    return (run.folder / "checkpoints/final.safetensors").read_bytes()


@pytest.mark.parametrize(
    "leaves",
    [
        "weights",
        *(pytest.param(kind, marks=pytest.mark.extended) for kind in ("frozen", "hook", "evaluating")),
    ],
)
def test_a_client_s_steps_do_not_depend_on_those_before_it_on_its_thread(tmp_path, leaves):
    assert final(tmp_path, 1, leaves=leaves) == final(tmp_path, 3, leaves="")


def test_a_state_that_is_a_view_of_the_network_is_that_of_its_moment(tmp_path):
    assert final(tmp_path, 1, copies=False) == final(tmp_path, 2, copies=True)


class AtHome(Algorithm):
    """Sends all entries but those with a word in their names (FedBN; Li et al. 2021)."""

    def __init__(self, word="norm"):
        self.word = word

    def start(self, client):
        return {"own": {name: array for name, array in client.received.items() if self.word in name}}

    def train(self, client):
        fit = client.fit({**client.received, **client.memory["own"]})
        own = client.memory["own"]
        client.memory["own"] = {name: fit.state[name] for name in own}
        return Sent(fit, only=[name for name in fit.state if name not in own])


@pytest.mark.parametrize(
    "word",
    [
        "norm",
        *(pytest.param(word, marks=pytest.mark.extended) for word in ("running_var", "num_batches", "we")),
    ],
)
def test_any_entries_may_stay_at_home(tmp_path, word):
    config = small_config(
        tmp_path, num_server_rounds=1, train__model="mlp-tiny", scaffold__enabled=False,
        train__algorithm_args__word=word,
    )  # fmt: skip
    run = simulate(config, algorithm=AtHome, terminal=io.StringIO())
    assert run.status == "completed", run.reason
