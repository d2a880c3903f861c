"""The soft family by the deal test: clean groups are found, and none where there are none."""

import numpy as np
import pytest

from fedge.clustering.likeness.evidence import Evidence
from fedge.clustering.likeness.updates import Updates
from fedge.methods.tested_family import TestedFamily

CLIENTS = 4


def evidence_of(labels, rng, apart=3.0, memory=None, global_round=1):
    """Leaves of four clients each, whose updates of one start lie around their group's."""
    start = {"w": np.zeros(20, np.float32)}
    updates, centres = Updates(start, ("w",), global_round), apart * rng.standard_normal((9, 20))
    models = []
    for leaf, label in enumerate(labels):
        made = [centres[label] + rng.standard_normal(20) for _ in range(CLIENTS)]
        for at, vector in enumerate(made):
            updates.note(CLIENTS * leaf + at, leaf, {"w": vector.astype(np.float32)}, 10)
        models.append({"w": np.mean(made, axis=0).astype(np.float32)})
    return Evidence(
        models, None, [1.0] * len(labels), ("w",), global_round=global_round, likeness=updates.likeness(),
        dispersion=np.ones(len(labels)), memory={} if memory is None else memory,
    )  # fmt: skip


@pytest.mark.parametrize("labels", [[0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 2, 2], [0, 0, 1, 1], [0, 1]])
def test_clean_groups_are_found(labels):
    """Of pairs of leaves, too: two leaves of four clients can be parted."""
    cloud = evidence_of(labels, np.random.default_rng(1))
    family = TestedFamily().group(cloud)
    wanted = {frozenset(np.flatnonzero(np.array(labels) == g).tolist()) for g in set(labels)}
    assert {frozenset(m) for m in family.facts["members"]} == wanted
    largest = family.memberships.argmax(axis=1)
    assert {frozenset(np.flatnonzero(largest == k).tolist()) for k in set(largest.tolist())} == wanted


def test_nothing_is_found_where_nothing_is_planted():
    """100 draws of six leaves alike at level .05: at most 11 splits, which has probability under 1 in 200."""
    rng = np.random.default_rng(2)
    found = [TestedFamily().group(evidence_of([0] * 6, rng)).memberships.shape[1] > 1 for _ in range(100)]
    assert sum(found) <= 11


def test_models_merge_again_when_a_probe_tells_them_apart_no_more():
    """Two groups in round 1; in round 2 a probe finds all alike."""
    memory = {}
    assert TestedFamily().group(evidence_of([0, 0, 1, 1], np.random.default_rng(3), memory=memory)).facts[
        "members"
    ] in ([[0, 1], [2, 3]], [[2, 3], [0, 1]])
    again = evidence_of([0, 0, 0, 0], np.random.default_rng(5), memory=memory, global_round=2)
    assert TestedFamily().group(again).memberships.tolist() == [[1.0]] * 4
