"""Memory of the cloud: facts for the next step from the steps before it."""

import json

import numpy as np
import pytest

from fedge.cloud.memory import CloudMemory
from fedge.clustering.likeness.evidence import CrossLosses
from fedge.clustering.likeness.updates import Likeness
from fedge.clustering.methods.ifca import Pool
from fedge.config.sections.cluster import ClusterConfig

BY_LOSSES = {"signal": "affinity", "method": "agglomerative", "count": "2", "patience": 2}
DEAL = {**BY_LOSSES, "count": "auto"}


def memory(**settings):
    return CloudMemory(ClusterConfig(**settings))


def test_what_is_off_needs_and_compares_nothing():
    assert memory(signal="update").needs("starts")
    off = memory(signal="update", enabled=False)
    assert not off.needs("starts")
    assert not off.compares
    assert not off.can_compare(9)


def test_a_test_for_groups_takes_two_leaves():
    assert memory().can_compare(1)
    assert [memory(**DEAL).can_compare(leaves) for leaves in (1, 2)] == [False, True]


def test_the_deal_test_needs_updates_and_no_losses_of_all_models():
    needed = {
        name: [memory(**of).needs(name) for of in (BY_LOSSES, DEAL)] for name in ("cross-losses", "updates")
    }
    assert needed == {"cross-losses": [True, False], "updates": [False, True]}


def test_what_updates_were_like_survives():
    before, after = memory(**DEAL), memory(**DEAL)
    before.likeness = Likeness(np.arange(9.0).reshape(1, 3, 3), np.array([0, 1, 2]), 1)
    after.restore(before.states(), json.loads(json.dumps(before.facts())))
    assert after.likeness.cosines.tolist() == before.likeness.cosines.tolist()
    assert after.likeness.leaf_of.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("every", "since", "common_start", "due"),
    [
        (0, 9, False, False),
        (3, 1, False, False),
        (3, 2, False, True),
        (3, 2, True, False),
        (1, 0, False, True),
    ],
)
def test_probes_come_every_so_many_steps_from_different_starts(every, since, common_start, due):
    known = memory(**BY_LOSSES, probe_every=every)
    known.since_probe = since
    assert known.is_probe_due(common_start) is due


def test_what_it_knows_survives():
    """Six comparisons of which four are kept, groups in force, and a pool with what was taken."""
    models = [{"w": np.array([value])} for value in (1.0, 2.0)]
    before, after = (CloudMemory(ClusterConfig(**BY_LOSSES), Pool(models[:])) for _ in range(2))
    for at in range(6):
        before.groups.recent.append(
            CrossLosses(np.full((2, 3), float(at)), np.arange(3), np.array([0, 0, 1]))
        )
    before.groups.membership.settle(np.array([0, 1]), 1)
    before.since_probe = 7
    before.pool.models = models[::-1]
    before.pool.take(np.array([1, 0]))
    after.restore(before.states(), json.loads(json.dumps(before.facts())))
    assert [cross.losses[0, 0] for cross in after.groups.recent] == [2, 3, 4, 5]
    assert after.groups.recent[0].leaf_of.tolist() == [0, 0, 1]
    assert after.groups.labels.tolist() == [0, 1]
    assert after.since_probe == 7
    assert [model["w"][0] for model in after.pool.models] == [2, 1]
    assert after.pool.taken.tolist() == [1, 0]
