"""Models that a leaf serves: three models of a leaf, known and unseen clients."""

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from fedge.config.flat import from_run_config
from fedge.config.sections.serving import PersonalConfig
from fedge.exchange.evaluate import CLUSTER, OWN
from fedge.exchange.round_context import PERSONAL
from fedge.leaf.leaf import Leaf
from fedge.serving.gate import GateResult
from fedge.serving.personal import PersonalResult
from fedge.serving.roles import extra_model_count, served_role, unseen_clients_evaluate, unseen_role

BY_CLUSTER, SAME = PersonalConfig(unseen_clients="cluster"), PersonalConfig(unseen_clients="same")


def state(value):
    return {"w": np.array([value], np.float32)}


def leaf_in_cluster(value=None):
    """A leaf with a model of 1, whose cluster's model is `value`; None for a leaf that is alone."""
    leaf = Leaf(0, {0: 10}, state(1), ["w"], FedAvg(), 0, unseen_clients=[1])
    leaf.models.apply_cloud_step(None if value is None else state(value), None)
    return leaf


@pytest.mark.parametrize(
    ("config", "cluster", "role"),
    [(BY_CLUSTER, 5, CLUSTER), (BY_CLUSTER, None, OWN), (SAME, 5, None), (SAME, None, None)],
)
def test_unseen_clients_are_served_their_cluster_s_model_unless_told_otherwise(config, cluster, role):
    assert unseen_role(config, leaf_in_cluster(cluster)) == role


def test_unseen_clients_evaluate_what_they_are_served():
    """Own model 1, offer 2, cluster's model 5."""
    models = {OWN: state(1), "offered": state(2)}

    def asked(config, cluster):
        found = unseen_clients_evaluate(config, leaf_in_cluster(cluster), models)
        return {role: float(model["w"][0]) for role, model in found.items()}

    assert asked(BY_CLUSTER, 5) == {CLUSTER: 5}
    assert asked(BY_CLUSTER, None) == {OWN: 1}
    assert asked(SAME, 5) == asked(SAME, None) == {OWN: 1, "offered": 2}


@pytest.mark.parametrize("config", [BY_CLUSTER, SAME])
@pytest.mark.parametrize("cluster", [None, 5])
def test_what_unseen_clients_are_served_has_been_sent_to_them(config, cluster):
    """Whatever the gate says and whether fine-tuning serves, the role is one that they evaluate."""
    leaf, models = leaf_in_cluster(cluster), {OWN: state(1), "offered": state(2)}
    sent = unseen_clients_evaluate(config, leaf, models).keys() | ({PERSONAL} if config is SAME else set())
    for chosen in models:
        gate = GateResult("accepted", 0.5, 0.5, True, role=chosen, unseen_role=unseen_role(config, leaf))
        for personal in (None, PersonalResult(0.5, 0.5, serves=True), PersonalResult(0.5, 0.4, serves=False)):
            assert served_role(gate, personal, unseen_client=True) in sent


def test_known_clients_are_served_what_the_gate_chose_or_what_was_tuned_for_them():
    gate = GateResult("accepted", 0.5, 0.75, True, role="offered", unseen_role=CLUSTER)
    assert served_role(gate, None, unseen_client=False) == "offered"
    assert served_role(gate, PersonalResult(0.5, 0.4, serves=False), unseen_client=False) == "offered"
    assert served_role(gate, PersonalResult(0.5, 0.6, serves=True), unseen_client=False) == PERSONAL


def test_models_that_a_leaf_keeps_beside_are_counted():
    """An own line beside a tentative offer, a fine-tuned model, and one for unseen clients."""
    assert extra_model_count(from_run_config({})) == 0
    assert extra_model_count(from_run_config({"gate.rule": "after-round"})) == 1
    assert extra_model_count(from_run_config({"gate.rule": "after-round", "gate.enabled": False})) == 0
    assert extra_model_count(from_run_config({"personal.leaf-rounds": 4})) == 1
    options = {"gate.rule": "after-round", "personal.leaf-rounds": 4, "partition.unseen-clients": 2}
    assert extra_model_count(from_run_config(options)) == 3
