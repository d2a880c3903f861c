"""Groups by the deal test in the steps of a server: jumps, the first model, what survives."""

import json

import numpy as np
import pytest

from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.by_deals import GroupsByDeals
from fedge.cloud.groups import GroupStep
from fedge.cloud.memory import CloudMemory
from fedge.cloud.settings import CloudSetting
from fedge.clustering.likeness.updates import Likeness
from fedge.config.sections.cluster import ClusterConfig
from fedge.leaf.strategies.aggregation import Contribution

DEAL = {"signal": "affinity", "method": "agglomerative", "count": "auto", "patience": 2}


def groups():
    return GroupsByDeals(ClusterConfig(**DEAL))


def likeness(leaves=2, per_leaf=5):
    """Clients of one leaf made the same update, those of others the opposite."""
    leaf_of = np.repeat(np.arange(leaves), per_leaf)
    cosines = np.where(leaf_of[:, None] == leaf_of, 1.0, -1.0)[None]
    return Likeness(cosines, leaf_of, 1)


def test_a_jump_of_a_leaf_s_losses_makes_a_probe_due():
    """From .1 to .5 the log rises by 1.6, more than .2; the other leaf's losses stay."""
    known = CloudMemory(ClusterConfig(**DEAL))
    known.groups.watch({0: (0, 0.1), 1: (1, 0.3)})
    assert not known.groups.has_jumped
    known.groups.watch({0: (0, 0.5), 1: (1, 0.3)})
    assert known.groups.has_jumped
    assert known.groups.dealt.jumped == [0]
    assert known.is_probe_due(common_start=True)
    assert known.compares


@pytest.mark.parametrize(
    ("common_start", "probe", "since"), [(False, None, 4), (False, "a probe", 0), (True, None, 0)]
)
def test_comparisons_since_the_last_probe_are_counted(common_start, probe, since):
    """A comparison from one start is as good as a probe; the reason for no result is said of new updates."""
    memory = CloudMemory(ClusterConfig(**DEAL))
    memory.since_probe = 3
    memory.groups.take_updates(likeness(), 3)
    memory.groups.dealt.too_few = "few"
    brought = [Contribution(leaf, {"w": np.ones(2)}, 1.0, 1) for leaf in range(2)]
    has_updates = probe is not None
    setting = CloudSetting(("w",), 7)
    step = GroupStep(brought, 1, memory, setting, probe, common_start, has_updates, None)
    settled = memory.groups.settle(step, None)
    assert memory.since_probe == since
    assert settled.facts.get("skipped") == ("few" if probe else None)
    assert settled.facts.get("probe") == (True if probe else None)


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (None, None),
        ([0, 1], None),
        ([0, 0], [{"kind": "split", "before": [[0, 1]], "after": [[0], [1]]}]),
    ],
)
def test_a_change_of_groups_in_force_is_told_and_the_first_groups_are_none(before, told, monkeypatch):
    memory = CloudMemory(ClusterConfig(**DEAL))
    dealt = memory.groups.dealt
    dealt.proposals.labels = None if before is None else np.array(before)
    monkeypatch.setattr(dealt, "settle", lambda answers, children: (np.array([0, 1]), {}))
    brought = [Contribution(leaf, {"w": np.ones(2)}, 1.0, 1) for leaf in range(2)]
    step = GroupStep(brought, 2, memory, CloudSetting(("w",), 7), None, False, False, None)
    assert memory.groups.settle(step, None).facts.get("events") == told


@pytest.mark.parametrize(
    ("labels", "joining", "offered"),
    [
        ([0, 0, 1, 1, 1], 2, [1.5, 1.5, 4.6, 4.6, 4.6]),  # (1 + 2) / 2, and (2 · 4 + 3 · 5) / 5
        ([0, 0, 0, 1, 1], 4, [2.0, 2.0, 2.0, 4.0, 4.0]),  # of a leaf that was alone
    ],
)
def test_a_leaf_that_joins_a_cluster_is_offered_its_model(labels, joining, offered, monkeypatch):
    """Unchanged: its own model does not count yet. It was offered nothing, and kept its old cluster's."""
    aggregator = CloudAggregator(ClusterConfig(**DEAL), CloudSetting(("w",), 7))
    dealt = aggregator.memory.groups.dealt
    dealt.proposals.labels = np.array([0, 0, 0, 1, 1])

    def settle(answers, children):
        dealt._new_members = [joining]
        return np.array(labels), {}

    monkeypatch.setattr(dealt, "settle", settle)
    states = [{"w": np.array([leaf + 1.0])} for leaf in range(5)]
    brought = [Contribution(i, state, (1.0, 1.0, 1.0, 2.0, 3.0)[i], 1) for i, state in enumerate(states)]
    step = aggregator.begin(states, 2).receive(brought, 2).open().finish()
    assert [None if model is None else float(model["w"][0]) for model in step.offers] == [
        None if value is None else pytest.approx(value) for value in offered
    ]


def test_updates_that_say_nothing_new_leave_the_first_ones():
    found = groups()
    found.take_updates(likeness(), 3)
    result = found.dealt.tests
    assert result
    again = likeness()
    assert found.take_updates(again, 3) is again
    assert found.dealt.tests is result
    assert found.probes_first


def test_what_survives_goes_on_alike():
    before, after = groups(), groups()
    kept = before.take_updates(likeness(), 3)
    assert before.dealt.is_open
    after.restore(kept, before.states(), json.loads(json.dumps(before.facts())))
    assert after.dealt.is_open
    assert [test.p for test in after.dealt.tests] == [test.p for test in before.dealt.tests]
    assert after.labels is None
    assert after.decides is before.decides is False
