"""ESPerHFL, as the public code of the comparison computes it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedge.clustering.likeness.evidence import Evidence
from fedge.config.sections.cluster import ClusterConfig
from fedge.methods.esperhfl import EsperHfl, EsperHflCloud, EsperHflLeaf
from fedge.training.settings import LocalTraining
from tests.support.methods.edges import Edges, flat
from tests.support.methods.one_leaf import OneLeaf

METHOD = json.loads((Path(__file__).parent / "witness_hierarchy.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("run", ["two_edge_rounds_no_clip", "one_edge_round_clipped"])
def test_three_rounds(run):
    method = METHOD["methods"]["esperhfl"]
    problem, found = METHOD["problems"][method["problem"]], method["runs"][run]
    edges = Edges(problem, found["hyperparameters"], EsperHfl, ClusterConfig(method="esperhfl"), EsperHflLeaf)
    for wanted in found["rounds"]:
        edges.round()
        for key, states in (
            ("edge_W_before_cloud", edges.brought),
            ("cloud_W_by_edge", [leaf.model for leaf in edges.leaves]),
            ("edge_V", [leaf.memory["v"] for leaf in edges.leaves]),
        ):
            np.testing.assert_allclose([flat(s) for s in states], wanted[key], rtol=1e-5, atol=1e-5)
        of_leaves = [leaf.memory["m"] for leaf in edges.leaves]
        np.testing.assert_allclose(of_leaves, wanted["edge_m"], rtol=1e-5, atol=1e-5)


def cloud_of(*vectors):
    models = [{"w": np.array(vector, dtype=np.float64)} for vector in vectors]
    return Evidence(models, None, [1] * len(models), ("w",))


def test_shares_by_hand():
    """Likeness of (1, 0) to itself turned over is 0, to (1, 1) it is 1 / (1 + 2 − 1) = ½."""
    found = EsperHflCloud(share=0.5, sharpness=2.0).group(cloud_of([1, 0], [0, 1], [1, 1])).memberships
    near = np.e / (1 + np.e)
    np.testing.assert_allclose(found[0], [0.5, 0.5 * (1 - near), 0.5 * near])
    np.testing.assert_allclose(found[2], [0.25, 0.25, 0.5])


def test_with_a_large_sharpness_every_leaf_moves_to_the_nearest():
    """Also a leaf unlike all others, whose weights are all below what a number holds."""
    found = EsperHflCloud(sharpness=5000.0).group(cloud_of([1, 0], [0, 1], [0.2, 0.9])).memberships
    np.testing.assert_allclose(found, [[0.3, 0, 0.7], [0, 0.3, 0.7], [0, 0.7, 0.3]], atol=1e-12)


def test_a_leaf_alone_and_leaves_of_zeros():
    assert EsperHflCloud().group(cloud_of([1, 2])).memberships.tolist() == [[1.0]]
    zeros = EsperHflCloud().group(cloud_of([0, 0], [0, 0], [0, 0])).memberships
    np.testing.assert_allclose(zeros, [[0.3, 0.35, 0.35], [0.35, 0.3, 0.35], [0.35, 0.35, 0.3]])


def test_the_mixture_is_evaluated():
    """m v + (1 − m) w, with the model that the client is served."""
    method = METHOD["methods"]["esperhfl"]
    problem, found = METHOD["problems"][method["problem"]], method["runs"]["two_edge_rounds_no_clip"]
    edges = Edges(problem, found["hyperparameters"], EsperHfl, ClusterConfig(method="esperhfl"), EsperHflLeaf)
    edges.round()
    leaf = edges.leaves[0]
    mixed, memory = leaf.models(0)["mixed"], leaf.memories[0]
    wanted = memory["m"] * flat(memory["v"]) + (1 - memory["m"]) * flat(leaf.model)
    np.testing.assert_allclose(flat(mixed), wanted, rtol=1e-6)


def share_after_a_round(rate, decay):
    """The m of a client after its first round, from ½."""
    torch.manual_seed(0)
    x, y = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32), np.arange(6) % 2
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    leaf = OneLeaf(
        EsperHfl(rate, decay), network, [(x, y)], LocalTraining(lr=0.5, batch_size=3), EsperHflLeaf()
    )
    leaf.round()
    return leaf.memories[0]["m"]


def test_the_share_moves_by_rate_and_decay():
    """½ − a (slope + b ½), the slope being that of any other a and b."""
    slope = (0.5 - share_after_a_round(0.1, 0.0)) / 0.1
    assert abs(slope) > 1e-3
    for rate, decay in ((0.3, 0.0), (0.1, 0.5), (0.2, 1.0)):
        assert share_after_a_round(rate, decay) == pytest.approx(0.5 - rate * (slope + decay / 2), abs=1e-6)
    assert share_after_a_round(1e6, 1.0) in (0.0, 1.0)
