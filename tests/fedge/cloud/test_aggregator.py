"""When the cloud meets its leaves, and what it sees before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.probe import Probe
from fedge.cloud.settings import CloudSetting
from fedge.clustering.likeness.evidence import Answers
from fedge.config.sections.cluster import ClusterConfig
from fedge.leaf.strategies.aggregation import Contribution


def state(value):
    return {"w": np.array([float(value)])}


def cloud(keep=lambda model: model, **settings):
    return CloudAggregator(
        ClusterConfig(**settings), CloudSetting(("w",), keep=keep), lambda c: state(10 * c)
    )


@given(st.integers(1, 20), st.integers(1, 7), st.integers(1, 60))
def test_due_rounds(start_round, every, round_):
    due = [r for r in range(1, 61) if cloud(start_round=start_round, every=every).is_due(r)]
    assert due == list(range(start_round, 61, every))


def test_starts_are_kept_for_methods_that_need_them():
    """Models may be large: `weights` compares what leaves end with, `update` what they have changed."""
    starts = [state(1), state(1)]
    assert cloud().begin(starts).starts is None
    assert cloud(signal="update").begin(starts).starts == starts
    assert cloud(signal="update", enabled=False).begin(starts).starts is None


@pytest.mark.parametrize(("values", "common"), [([1, 1, 1], True), ([1, 1, 2], False), ([1], True)])
def test_a_common_start_is_one_of_equal_bits(values, common):
    assert cloud().begin([state(value) for value in values]).common_start is common


def test_without_models_of_the_cloud_there_is_no_first_choice():
    assert cloud().first_choice(3) is None


def test_leaves_choose_among_the_models_of_the_cloud_before_the_first_round():
    """Clients 0 and 1 of leaf 0 lose 1 and 4 with model 0, 3 and 3 with model 1: 2.5 < 3. Leaf 1: 5 > 2."""
    kept = []
    aggregator = cloud(lambda model: kept.append(model) or model, method="ifca", count="2")
    choice = aggregator.first_choice(2)
    assert [model["w"][0] for model in kept] == [0, 10]
    assert [{role: model["w"][0] for role, model in roles.items()} for roles in choice.questions] == [
        {"pool-0": 0, "pool-1": 10}
    ] * 2
    losses = {"pool-0": np.array([1.0, 4.0, 5.0]), "pool-1": np.array([3.0, 3.0, 2.0])}
    labels, models = choice.choose(Answers(losses, np.array([5, 5, 5]), np.array([0, 0, 1])))
    assert labels.tolist() == [0, 1]
    assert [model["w"][0] for model in models] == [0, 10]


def test_where_not_all_can_be_compared_by_the_first_round_all_are_asked_once():
    """Updates of the first leaf round are then no evidence; a probe of the first model is, made once."""
    config = ClusterConfig(signal="affinity", method="agglomerative", count="auto", patience=2, level="auto")
    setting = CloudSetting(("w",), asks_all=True, even_windows=7)
    aggregator, first = CloudAggregator(config, setting), state(1)
    aggregator.set_initial_model(first)
    begun = aggregator.begin([first, first])
    assert begun.updates is None
    brought = [Contribution(leaf, state(leaf), 1.0, 1) for leaf in range(2)]
    received = begun.receive(brought)
    assert received.probe_start() is first
    updates = begun.probed_updates(first, 1)
    for client in range(8):
        updates.note(client, client // 4, {"w": np.array([1.0 + client % 3, 2.0])}, 7)
    received.open(Probe(first, [first, first], updates)).finish()
    later = aggregator.begin([first, first], 2).receive(brought, 2)
    assert later.probe_start() is None
