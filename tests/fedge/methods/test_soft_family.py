"""The published soft family: its rounds as the public code computes them, and what it cannot do."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedge.cloud.families import family_models, family_offers
from fedge.clustering.memberships import soft_moves as moves
from fedge.clustering.registry import method_named
from fedge.config.registers.option import ConfigError
from fedge.config.sections.cluster import ClusterConfig
from fedge.leaf.strategies.aggregation import Contribution
from fedge.methods.fedavg import FedAvg
from tests.support.methods.edges import Edges, flat

WITNESS = json.loads((Path(__file__).parent / "witness_hierarchy.json").read_text(encoding="utf-8"))
NEAR = {"rtol": 1e-5, "atol": 1e-5}


def near(found, wanted):
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), **NEAR)


@pytest.mark.parametrize(
    ("file", "run"),
    [("soft-family-heuristic", "lambda_0"), ("soft-family-heuristic", "lambda_0.5"),
     ("soft-family-heuristic", "lambda_1"), ("soft-family-mh", "lambda_1")],
)  # fmt: skip
def test_three_rounds(file, run):
    """Clients, edges, dispersions, clusters, memberships, models, and what every edge is served."""
    method = WITNESS["methods"][file]
    given, rounds = method["runs"][run]["hyperparameters"], method["runs"][run]["rounds"]
    arguments = {"dial": given["lambda-val"], "rule": given["inference"], "warmup": given["warmup-rounds"]}
    config = ClusterConfig(method="soft-family", method_args=json.dumps(arguments))
    edges = Edges(WITNESS["problems"][method["problem"]], given, FedAvg, config)
    for wanted in rounds:
        step = edges.round()
        near([flat(model) for model in edges.brought], wanted["edges"])
        near(edges.spread, wanted["intra"])
        assert sorted(map(sorted, step.facts["members"])) == sorted(map(sorted, wanted["members"]))
        order = [list(map(sorted, wanted["members"])).index(sorted(own)) for own in step.facts["members"]]
        near(step.memberships, np.array(wanted["Pi"])[:, order])
        brought = [
            Contribution(i, m, w, 1)
            for i, (m, w) in enumerate(zip(edges.brought, edges.weights, strict=True))
        ]
        made = family_models(step.memberships, brought)
        near([flat(model) for model in made], np.array(wanted["family_W"])[order])
        near([flat(leaf.model) for leaf in edges.leaves], wanted["served_next"])


@pytest.mark.parametrize("case", WITNESS["functions"]["split_and_merge"], ids=lambda case: case["case"])
def test_splits_and_merges(case):
    """Twenty cases, of Metropolis-Hastings with the public code's draws."""
    vectors, given = np.array(case["edges"]), case["hyperparameters"]
    if case["mode"] == "mh":
        rng = np.random.default_rng(case["seed"])
        members = moves.metropolis_hastings(
            vectors, case["members"], given["alpha_0"], given["K_max"], case["sweeps"], rng
        )
    else:
        rule = moves.exceeds_dispersion(np.array(case["intra"]), given["theta_split"])
        members = moves.merge(
            vectors, moves.split(vectors, case["members"], given["K_max"], rule), given["theta_merge"]
        )
    assert sorted(map(sorted, members)) == sorted(map(sorted, case["members_after"]))


@pytest.mark.parametrize("case", WITNESS["functions"]["membership"], ids=lambda case: case["case"])
def test_memberships(case):
    given, before = case["hyperparameters"], case["previous_Pi"]
    found = moves.memberships(
        np.array(case["edges"]), np.array(case["centroids"]), np.array(case["intra"]), given["tau_0"],
        given["beta_intra"], None if before is None else np.array(before), given["rho"],
    )  # fmt: skip
    near(found, case["Pi"])


@pytest.mark.parametrize("case", WITNESS["functions"]["dial"], ids=lambda case: str(case["lambda"]))
def test_the_dial(case):
    found = moves.dial_at(case["lambda"])
    wanted = [case[name] for name in ("alpha_0", "tau_0", "theta_split", "theta_merge")]
    near([found.alpha, found.tau, found.split, found.merge], wanted)


@pytest.mark.parametrize(
    "case", WITNESS["functions"]["aggregation_and_blending"], ids=lambda case: case["case"]
)
def test_models_and_mixtures(case):
    """w_k and Σ_k Π_ek w_k, of rows that sum to 1; a model without leaves is none here, and zeros there."""
    shares = np.array(case["Pi"])
    brought = [
        Contribution(i, {"w": np.array(vector)}, max(float(n), 1e-12), 1)
        for i, (vector, n) in enumerate(zip(case["edges"], case["samples"], strict=True))
    ]
    models = family_models(shares, brought)
    for model, wanted in zip(models, case["family_W"], strict=True):
        near(np.zeros(len(wanted)) if model is None else model["w"], wanted)
    offers = family_offers(shares, models)
    near([offer["w"] for offer in offers], np.array(case["blended"]) / shares.sum(axis=1, keepdims=True))


def two_groups(rng, of=3):
    """Two clean groups of leaves in ten dimensions."""
    centres = 3 * rng.standard_normal((2, 10))
    return np.repeat(centres, of, axis=0) + 0.3 * rng.standard_normal((2 * of, 10))


def test_the_published_cut_misses_clean_groups_and_the_smallest_eigenvalue_finds_them():
    """Two clean groups of three, 200 draws: 0 by the largest eigenvalue, 200 by the smallest."""
    rng, found = np.random.default_rng(0), {-1: 0, 0: 0}
    for _ in range(200):
        vectors = two_groups(rng)
        for which in found:
            first, second = moves.split_by_eigenvector(vectors, range(6), which)
            found[which] += {frozenset(first), frozenset(second)} == {
                frozenset({0, 1, 2}),
                frozenset({3, 4, 5}),
            }
    assert found == {-1: 0, 0: 200}


def test_two_leaves_are_never_cut_apart_as_published():
    vectors = np.array([[0.0, 1.0], [5.0, -2.0]])
    assert moves.split_by_eigenvector(vectors, [0, 1], -1)[0] == []
    assert sorted(moves.split_by_eigenvector(vectors, [0, 1], 0)) == [[0], [1]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"rule": "gibbs"}', "rule must be one of heuristic, mh"),
        ('{"dail": 1}', "method-args.dail must be an argument of .* soft-family, .*; did you mean dial?"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(arguments, words):
    with pytest.raises(ConfigError, match=words):
        method_named(ClusterConfig(method="soft-family", method_args=arguments))
