"""FedSoft against its formulas, worked out in float64 by themselves."""

import numpy as np
import pytest
import torch
from torch import nn

from fedge.methods.fedsoft import FedSoft, FedSoftLeaf
from fedge.training.settings import LocalTraining
from tests.support.methods.one_leaf import OneLeaf

FEATURES, CLASSES, LR, STEPS, STRENGTH = 3, 2, 0.2, 3, 0.7


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES))


def windows_of(rng, count, turned):
    """Windows whose class is the sign of their first number, or the other one."""
    x = rng.normal(size=(count, FEATURES, 1)).astype(np.float32)
    return x, ((x[:, 0, 0] > 0) ^ turned).astype(np.int64)


def probabilities(w, x):
    z = x @ w[:, :FEATURES].T + w[:, FEATURES]
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def gradient(w, x, y):
    wrong = (probabilities(w, x) - np.eye(CLASSES)[y]) / len(y)
    return np.hstack([wrong.T @ x, wrong.sum(axis=0)[:, None]])


def matrix(state):
    """(classes, features + 1): weights, then the bias."""
    return np.hstack([np.float64(state["1.weight"]), np.float64(state["1.bias"])[:, None]])


def test_three_rounds_by_the_formulas():
    """Shares every second round; own models pulled to both clusters; clusters by shares and windows."""
    rng = np.random.default_rng(5)
    data = [windows_of(rng, n, turned) for n, turned in ((9, False), (6, True), (7, False))]
    settings = LocalTraining(lr=LR, epochs=STEPS, batch_size=16)
    leaf = OneLeaf(FedSoft(2, STRENGTH, 2), network(), data, settings, part=FedSoftLeaf(2))
    flat = [(np.float64(x[:, :, 0]), y) for x, y in data]
    own = [matrix(leaf.model) for _ in data]
    centres = [matrix(leaf.memory["c0"]), matrix(leaf.memory["c1"])]
    assert not np.allclose(*centres)
    np.testing.assert_allclose(np.sort(centres[0][:, :-1].ravel()), np.sort(centres[1][:, :-1].ravel()))
    u = [np.zeros(2)] * 3
    for number in range(3):
        leaf.round()
        for i, (x, y) in enumerate(flat):
            if number % 2 == 0:
                losses = [-np.log(probabilities(c, x)[np.arange(len(y)), y]) for c in centres]
                best = np.argmin(losses, axis=0)
                u[i] = np.maximum([(best == s).mean() for s in range(2)], 1e-4)
            for _ in range(STEPS):
                pull = sum(STRENGTH * u[i][s] * (own[i] - centres[s]) for s in range(2))
                own[i] = own[i] - LR * (gradient(own[i], x, y) + pull)
        weights = [[u[i][s] * len(flat[i][1]) for i in range(3)] for s in range(2)]
        centres = [np.average(own, axis=0, weights=w) for w in weights]
        for i in range(3):
            np.testing.assert_allclose(matrix(leaf.models(i)["own"]), own[i], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(leaf.memories[i]["u"], u[i])
        for s in range(2):
            np.testing.assert_allclose(matrix(leaf.memory[f"c{s}"]), centres[s], rtol=1e-5, atol=1e-5)
        mean = np.average(own, axis=0, weights=[len(y) for _, y in flat])
        np.testing.assert_allclose(matrix(leaf.model), mean, rtol=1e-5, atol=1e-5)
    assert len({tuple(each) for each in u}) > 1


def test_no_clusters_are_refused():
    with pytest.raises(ValueError, match="clusters must be at least 1"):
        FedSoftLeaf(0)
