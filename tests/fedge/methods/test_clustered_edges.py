"""Clustered edges: k-means++ as the public code's, and its rounds."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedge.config.sections.cluster import ClusterConfig
from fedge.methods.clustered_edges import ClusteredEdges, kmeans_labels
from fedge.methods.fedavg import FedAvg
from tests.support.methods.edges import Edges, flat

WITNESS = json.loads((Path(__file__).parent / "witness_hierarchy.json").read_text(encoding="utf-8"))
METHOD = WITNESS["methods"]["chpfl"]


@pytest.mark.parametrize("case", METHOD["runs"]["kmeans_cases"])
def test_kmeans(case):
    """Same generator, same calls, labels up to renaming; equal points and K = N among them."""
    found = kmeans_labels(np.array(case["points"]), case["k"], np.random.default_rng(case["seed"]))
    pairs = {(int(a), b) for a, b in zip(found, case["labels"], strict=True)}
    assert len(pairs) == len(set(case["labels"])) == len(set(found.tolist()))


@pytest.mark.parametrize("run", ["two_edge_rounds_no_clip", "one_edge_round_clipped"])
def test_three_rounds_with_the_grouping_given(run, monkeypatch):
    """These edges' grouping depends on the random start; all else does not."""
    found = METHOD["runs"][run]
    given = found["hyperparameters"]
    labels = next(r["cluster_of_edge"] for r in found["rounds"] if r["clustered"])
    monkeypatch.setattr("fedge.methods.clustered_edges.kmeans_labels", lambda *_: np.array(labels))
    arguments = json.dumps({"clusters": given["K"], "warmup": given["warmup-rounds"]})
    config = ClusterConfig(method="clustered-edges", method_args=arguments)
    edges = Edges(WITNESS["problems"][METHOD["problem"]], given, FedAvg, config)
    for wanted in found["rounds"]:
        edges.round()
        np.testing.assert_allclose([flat(m) for m in edges.brought], wanted["edges"], rtol=1e-5, atol=1e-5)


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="must be at least 1"):
        ClusteredEdges(clusters=0)
