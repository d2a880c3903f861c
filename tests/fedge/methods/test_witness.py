"""Methods meet what the public code named in witness.json computes, to 1e-5."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedge.algorithm.algorithm import Algorithm
from fedge.methods.apfl import Apfl
from fedge.methods.ditto import Ditto
from fedge.methods.fedala import FedAla
from fedge.methods.fedavg import FedAvg
from fedge.methods.fedbabu import FedBabu
from fedge.methods.feddyn import FedDyn, FedDynLeaf
from fedge.methods.fedper import FedPer
from fedge.methods.fedrep import FedRep
from fedge.methods.moon import Moon
from fedge.methods.pfedme import PFedMe, PFedMeLeaf
from fedge.training.settings import LocalTraining
from tests.support.methods.one_leaf import OneLeaf

WITNESS = json.loads((Path(__file__).parent / "witness.json").read_text(encoding="utf-8"))
CLIENTS = (0, 4)  # of whom the file has numbers
BASE = 24  # numbers below the last layer


class Net(nn.Module):
    """logits = W2 tanh(W1 x + b1) + b2."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(5, 4)
        self.head = nn.Linear(4, 3)
        flat = torch.tensor(WITNESS["problem"]["initial_flat"])
        nn.utils.vector_to_parameters(flat, self.parameters())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.base(x.flatten(1))))


def flat(state: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(a).ravel() for a in state.values()])


def leaf_of(method: str, run: str, algorithm: Algorithm, **more: Any) -> tuple[OneLeaf, list[dict[str, Any]]]:
    found = WITNESS["methods"][method]["runs"][run]
    clients = WITNESS["problem"]["edges"][0]
    windows = [
        (np.array(c["x"], dtype=np.float32)[:, :, None], np.array(c["y"], dtype=np.int64)) for c in clients
    ]
    given = found["hyperparameters"]
    settings = LocalTraining(
        lr=given["local_learning_rate"],
        epochs=given["local_epochs"],
        batch_size=max(len(y) for _, y in windows),
    )
    return OneLeaf(algorithm, Net(), windows, settings, **more), found["rounds"]


def near(found: Mapping[str, np.ndarray] | np.ndarray, wanted: Any) -> None:
    found = flat(found) if isinstance(found, Mapping) else found
    np.testing.assert_allclose(found[: len(wanted)], wanted, rtol=1e-5, atol=1e-5)


def each_round(leaf: OneLeaf, rounds: list[dict[str, Any]], key: str = "cloud") -> dict[str, Any]:
    for wanted in rounds:
        leaf.round()
        near(leaf.model, wanted[key])
    return rounds[-1]


def test_fedavg() -> None:
    """The control of the frame: if this one fails, no other tells anything."""
    leaf, rounds = leaf_of("fedavg-flat", "a", FedAvg())
    last = each_round(leaf, rounds)
    for c in CLIENTS:
        near(leaf.sent[c], last["client"][str(c)])


@pytest.mark.parametrize(("run", "strength", "epochs"), [("a", 0.5, 2), ("b", 2.0, 3)])
def test_ditto(run: str, strength: float, epochs: int) -> None:
    """The personal model pulled to the one received."""
    leaf, rounds = leaf_of("ditto", run, Ditto(strength, epochs))
    last = each_round(leaf, rounds)
    for c in CLIENTS:
        near(leaf.models(c)["personal"], last["client_personal"][str(c)])


@pytest.mark.parametrize(("run", "strength", "beta"), [("a", 2.0, 1.0), ("b", 1.0, 0.7)])
def test_pfedme(run: str, strength: float, beta: float) -> None:
    """PFLlib's variant: θ goes on between batches, with its decay."""
    method = PFedMe(strength, inner_steps=3, lr=0.1, restart=False, decay=0.001)
    leaf, rounds = leaf_of("pfedme", run, method, part=PFedMeLeaf(beta))
    last = each_round(leaf, rounds)
    for c in CLIENTS:
        near(leaf.sent[c], last["client_w"][str(c)])
        near(leaf.models(c)["personal"], last["client_theta"][str(c)])


@pytest.mark.parametrize(("run", "alpha"), [("a", 0.5), ("b", 0.8)])
def test_apfl(run: str, alpha: float) -> None:
    """PFLlib's variant."""
    leaf, rounds = leaf_of("apfl", run, Apfl(alpha, variant="pfllib"))
    last = each_round(leaf, rounds)
    for c in CLIENTS:
        near(leaf.models(c)["mixed"], last["client_v_mixed"][str(c)])
        assert leaf.memories[c]["alpha"] == pytest.approx(last["client_alpha"][str(c)], abs=1e-5)


@pytest.mark.parametrize(("run", "head", "base"), [("a", 2, 2), ("b", 4, 1)])
def test_fedrep(run: str, head: int, base: int) -> None:
    """The head first, then the base; only the base travels."""
    leaf, rounds = leaf_of("fedrep", run, FedRep(head, base))
    last = each_round(leaf, rounds, "cloud_base")
    for c in CLIENTS:
        own = np.concatenate([flat(leaf.sent[c])[:BASE], flat(leaf.memories[c]["head"])])
        near(own, last["client"][str(c)])


def test_fedper() -> None:
    """Base and head together; only the base travels."""
    leaf, rounds = leaf_of("fedper", "a", FedPer())
    last = each_round(leaf, rounds, "cloud_base")
    for c in CLIENTS:
        own = np.concatenate([flat(leaf.sent[c])[:BASE], flat(leaf.memories[c]["head"])])
        near(own, last["client"][str(c)])


def test_fedbabu() -> None:
    """The base alone; fine-tuning from the client's own last base, as PFLlib has it."""
    leaf, rounds = leaf_of("fedbabu", "a", FedBabu(tune_epochs=4, from_own=True))
    last = each_round(leaf, rounds, "cloud_base")
    tuned = WITNESS["methods"]["fedbabu"]["runs"]["a"]["after_fine_tuning_of_the_last_clients"]
    for c in CLIENTS:
        near(leaf.sent[c], last["client"][str(c)][:BASE])
        near(leaf.models(c)["tuned"], tuned[str(c)])


@pytest.mark.parametrize(("run", "alpha"), [("a", 0.1), ("b", 0.5)])
def test_feddyn(run: str, alpha: float) -> None:
    """PFLlib's norm, which is not squared."""
    leaf, rounds = leaf_of("feddyn", run, FedDyn(alpha, squared=False), part=FedDynLeaf(alpha))
    last = each_round(leaf, rounds)
    near(leaf.memory["h"], last["server_state"])
    for c in CLIENTS:
        near(leaf.memories[c]["h"], last["client_old_grad"][str(c)])


def test_moon() -> None:
    """Without a projection head."""
    leaf, rounds = leaf_of("moon", "a", Moon(mu=1.0, temperature=0.5))
    last = each_round(leaf, rounds)
    for c in CLIENTS:
        near(leaf.sent[c], last["client"][str(c)])


def test_fedala() -> None:
    """On all windows, so that no stretch is drawn."""
    leaf, rounds = leaf_of("fedala", "a", FedAla(layers=2, eta=1.0, share=1.0))
    last = each_round(leaf, rounds)
    for c in CLIENTS:
        near(leaf.sent[c], last["client"][str(c)])
        near(leaf.memories[c]["omega"], last["ala_weights"][str(c)])
