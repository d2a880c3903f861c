"""PHE-FL, as the public code of the comparison computes it."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedge.clustering.likeness.evidence import Answers, Evidence
from fedge.config.sections.cluster import ClusterConfig
from fedge.methods.fedavg import FedAvg
from fedge.methods.phefl import PheFl
from tests.support.methods.edges import Edges, flat

METHOD = json.loads((Path(__file__).parent / "witness_hierarchy.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("run", ["two_edge_rounds_no_clip", "one_edge_round_clipped"])
def test_three_rounds(run):
    method = METHOD["methods"]["phefl"]
    problem, found = METHOD["problems"][method["problem"]], method["runs"][run]
    edges = Edges(problem, found["hyperparameters"], FedAvg, ClusterConfig(method="phefl"))
    for wanted in found["rounds"]:
        asked = []
        step = edges.round(lambda questions: asked.extend(questions) or edges.scores(questions))  # noqa: B023
        for key, models in (
            ("edge_aggregated_EAM", edges.brought),
            ("complement_CAM", [each["others"] for each in asked]),
            ("personal_edge_PEAM", [leaf.model for leaf in edges.leaves]),
        ):
            np.testing.assert_allclose([flat(m) for m in models], wanted[key], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(step.facts["alpha"], wanted["alpha"], atol=1e-8)


def evidence_of(weights, own, others):
    clients = np.arange(len(weights))
    answers = Answers({}, np.ones(len(weights)), clients, 0, clients, {"own": own, "others": others})
    models = [{"w": np.array([float(c)])} for c in clients]
    return Evidence(models, None, weights, ("w",), answers=answers)


def test_half_where_nothing_is_known():
    """Leaf 0: both scores 0; leaf 1: nobody answered; leaf 2: 3/4 own."""
    cloud = evidence_of([1, 1, 2], np.array([0.0, np.nan, 0.9]), np.array([0.0, 0.5, 0.3]))
    found = PheFl().group(cloud)
    assert found.facts["alpha"] == [0.5, 0.5, pytest.approx(0.75)]
    np.testing.assert_allclose(found.memberships[0], [0.5, 0.5 / 3, 1 / 3])


def test_a_leaf_alone_keeps_its_own():
    assert PheFl().group(evidence_of([3], np.array([0.2]), np.array([0.2]))).memberships.tolist() == [[1.0]]
