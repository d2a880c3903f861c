"""Groups that a method finds: nothing is tried, and the newest losses survive."""

import json

import numpy as np

from fedge.cloud.by_method import GroupsByMethod
from fedge.cloud.method_memory import RECENT_STEPS
from fedge.clustering.likeness.evidence import CrossLosses
from fedge.config.sections.cluster import ClusterConfig

CONFIG = ClusterConfig(signal="affinity", method="agglomerative", count="2", patience=2)
TWO = np.array([0, 0, 1, 1])
MODELS = [{"w": np.array([value])} for value in (1.0, 3.0, 10.0, 30.0)]


def test_nothing_is_tried():
    groups = GroupsByMethod(CONFIG)
    groups.membership.settle(TWO, 2)
    assert not groups.decides
    assert not groups.has_jumped
    assert groups.alone == frozenset()
    assert groups.forks(MODELS, [1.0] * 4) == [None] * 4
    assert groups.fold_starts(MODELS, [1.0] * 4) == {}


def test_what_survives_is_the_membership_and_the_newest_losses():
    before, after = (GroupsByMethod(CONFIG) for _ in range(2))
    before.membership.settle(TWO, 2)
    for at in range(RECENT_STEPS + 1):
        before.recent.append(CrossLosses(np.full((2, 2), float(at)), np.arange(2), np.array([0, 1])))
    after.restore(None, before.states(), json.loads(json.dumps(before.facts())))
    assert [cross.losses[0, 0] for cross in after.recent] == [1, 2, 3, 4]
    assert after.membership.settle(TWO, 2).tolist() == TWO.tolist()


def test_losses_of_clients_that_have_moved_are_forgotten():
    groups = GroupsByMethod(CONFIG)
    groups.recent.append(CrossLosses(np.zeros((2, 2)), np.arange(2), np.array([0, 1])))
    groups.forget_losses()
    assert groups.states() == {}
