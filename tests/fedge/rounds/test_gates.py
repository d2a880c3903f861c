"""Gates of two leaves with one known and one unseen client each, evaluations written down here."""

import numpy as np
import pytest
from evaluations import classified
from flwr.serverapp.strategy import FedAvg

from fedge.cloud.offers import Offer
from fedge.config.flat import from_run_config
from fedge.leaf.leaf import Leaf
from fedge.rounds.gates import Gates
from fedge.rounds.measurements.round_record import ServerRoundRecord


def state(value):
    return {"w": np.array([value], np.float32)}


def gates_of(leaves, **options):
    config = from_run_config(options)
    return Gates(leaves, config.gate, config.personal)


def evaluation(right, beside_own=None):
    return classified(np.array([[right, 10 - right], [0, 0]]), 1.0, beside_own)


@pytest.fixture
def round_():
    """Leaf 0 is offered 5, which has 2 windows more right; leaf 1 is alone in its cluster."""
    leaves = [
        Leaf(i, {2 * i: 30}, state(i), ["w"], FedAvg(), 0, unseen_clients=[2 * i + 1]) for i in range(2)
    ]
    cluster = state(5)
    leaves[0].models.apply_cloud_step(cluster, None)
    record = ServerRoundRecord(offers=[{"offered": Offer(1.0, cluster)}, {}])
    evaluated = {
        0: {("own", "val"): evaluation(4), ("offered", "val"): evaluation(6, beside_own=(1, 3))},
        2: {("own", "val"): evaluation(7)},
    }
    return leaves, record, evaluated


def test_who_evaluates_what(round_):
    leaves, record, _ = round_
    asked = gates_of(leaves).evaluation_request(record)
    assert [list(asked.models[leaf.index]) for leaf in leaves] == [["own", "offered"], ["own"]]
    assert [list(asked.unseen_clients[leaf.index]) for leaf in leaves] == [["cluster"], ["own"]]
    assert asked.models_of(0, leaves[0])["own"] is leaves[0].model
    assert asked.models_of(1, leaves[0]) == {"cluster": leaves[0].models.cluster}
    assert tuple(asked.splits) == ("val", "test")


def test_leaves_go_on_with_what_their_gates_chose(round_):
    leaves, record, evaluated = round_
    gates = gates_of(leaves)
    gates.decide(record, gates.evaluation_request(record), evaluated)
    assert [(g.decision, g.role, g.unseen_role) for g in record.gates] == [
        ("accepted", "offered", "cluster"), ("off", "own", "own"),
    ]  # fmt: skip
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [5, 1]
    assert leaves[0].models.served is leaves[0].model
    assert leaves[0].models.unseen is leaves[0].models.cluster
    assert leaves[1].models.unseen is leaves[1].model


def test_with_after_round_the_offer_is_trained_before_the_gate_decides(round_):
    leaves, record, evaluated = round_
    gates = gates_of(leaves, **{"gate.rule": "after-round"})
    asked = gates.evaluation_request(record)
    assert list(asked.models[0]) == ["own"]
    gates.decide(record, asked, evaluated)
    models = leaves[0].models
    assert [float(m["w"][0]) for m in (models.model, models.served, models.own_line)] == [5, 0, 0]
    assert leaves[1].models.own_line is None


def test_without_a_gate_leaves_go_on_before_anybody_has_evaluated(round_):
    """The decisions are those that come of the evaluations, once these are there."""
    leaves, record, evaluated = round_
    gates = gates_of(leaves, **{"gate.enabled": False})
    assert gates.is_predetermined(record)
    assert not gates_of(leaves).is_predetermined(record)
    gates.decide(record, gates.evaluation_request(record), {})
    foreseen = [(g.role, g.unseen_role, g.serves_offer) for g in record.gates]
    assert foreseen == [("offered", "cluster", True), ("own", "own", False)]
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [5, 1]
    gates.decide_again(record, evaluated)
    assert [(g.role, g.unseen_role, g.serves_offer) for g in record.gates] == foreseen
    assert [(g.score_own, g.score_offered) for g in record.gates] == [(0.4, 0.6), (0.7, None)]
