"""Groups that a method finds: when they are tried, and what survives."""

import json

import numpy as np

from fedge.cloud.by_trial import RECENT_STEPS, GroupsByTrial
from fedge.cloud.memory import CloudMemory
from fedge.clustering.evidence import CrossLosses
from fedge.config.sections.cluster import ClusterConfig

AUTO = {"signal": "affinity", "method": "agglomerative", "count": "auto", "test": "sign-flip", "patience": 2}
TWO = np.array([0, 0, 1, 1])
MODELS = [{"w": np.array([value])} for value in (1.0, 3.0, 10.0, 30.0)]


def memory(**settings):
    return CloudMemory(ClusterConfig(**{**AUTO, **settings}))


def test_a_trial_is_due_when_groups_wait_for_it():
    """Patience 2: what the first step finds is trained until the second, which decides. Means 2 and 20."""
    known = memory()
    groups = known.groups
    assert not groups.is_trial_next(known)
    assert groups.forks(known, MODELS, [1.0] * 4) == [None] * 4
    groups.membership.settle(TWO, 2, False, True, None)
    assert groups.decides
    assert groups.is_trial_next(known)
    assert [float(fork["w"][0]) for fork in groups.forks(known, MODELS, [1.0] * 4)] == [2, 2, 20, 20]
    assert groups.labels.tolist() == [0, 0, 0, 0]


def test_groups_found_by_a_probe_are_tried_by_a_probe():
    """Found without one, while the next step has one, as groups are apart: they wait."""
    known = memory(probe_every=1)
    known.groups.membership.settle(TWO, 1, False, False, None)
    known.groups.membership.settle(np.array([0, 1, 2, 2]), 2, False, True, None)
    assert known.groups.decides
    assert not known.groups.is_trial_next(known)


def test_without_a_test_nothing_is_tried():
    known = CloudMemory(ClusterConfig())
    known.groups.membership.settle(TWO, 2, False, False, None)
    assert not known.groups.decides
    assert not known.groups.has_jumped
    assert known.groups.alone == frozenset()
    assert known.groups.fold_starts(MODELS, [1.0] * 4) == {}


def test_what_survives_is_the_membership_and_the_newest_losses():
    before, after = (GroupsByTrial(ClusterConfig(**AUTO), is_tried=True) for _ in range(2))
    before.membership.settle(TWO, 2, False, True, None)
    for at in range(RECENT_STEPS + 1):
        before.recent.append(CrossLosses(np.full((2, 2), float(at)), np.arange(2), np.array([0, 1])))
    after.restore(None, before.states(), json.loads(json.dumps(before.facts())))
    assert [cross.losses[0, 0] for cross in after.recent] == [1, 2, 3, 4]
    assert after.membership.candidate.tolist() == TWO.tolist()
    assert after.decides
