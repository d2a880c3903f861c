"""StoCFL at the leaves: joinings by hand, and what is kept of the first round."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedge.clustering.likeness.evidence import Evidence
from fedge.clustering.methods.stocfl import merge_once
from fedge.clustering.registry import method_named
from fedge.config.sections.cluster import ClusterConfig


def fan(*angles, lengths=None):
    """Updates in these directions, in degrees."""
    radians = np.radians(angles)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1) * np.reshape(
        lengths or [1] * len(angles), (-1, 1)
    )


def evidence(updates, **more):
    models = [{"w": np.array([update])} for update in updates]
    starts = [{"w": np.zeros((1, 2))}] * len(updates)
    return Evidence(models, starts, [1] * len(updates), ("w",), **more)


def test_pairs_are_joined_with_whoever_hangs_on_them():
    """0° and 40°, 40° and 80°: cos 40° = .77; 0° and 80°: .17. At .7 they are one; 170° is far from all."""
    gram = fan(0, 40, 80, 170) @ fan(0, 40, 80, 170).T
    assert merge_once(gram, np.arange(4), 0.7).tolist() == [0, 0, 0, 1]
    assert merge_once(gram, np.arange(4), 0.8).tolist() == [0, 1, 2, 3]


def test_clusters_go_by_the_mean_of_what_their_leaves_did():
    """Means of {0°, length 3; 90°, length 1} lie at 18.4°, not at 45°: cosine with 60° .75, with −60° .2."""
    updates = fan(0, 90, 60, -60, lengths=[3, 1, 1, 1])
    gram = updates @ updates.T
    assert merge_once(gram, np.array([0, 0, 1, 2]), 0.74).tolist() == [0, 0, 0, 1]
    assert merge_once(gram, np.array([0, 0, 1, 2]), 0.76).tolist() == [0, 0, 1, 2]


def test_rounds_join_what_their_means_have_in_common_and_never_part():
    """At .8: first 0° and 30° (.87), 80° and 110°; their means at 15° and 95° have cos 80° = .17: that is
    all. At .1 the means are joined in the second round. What leaves do later changes nothing."""
    config = ClusterConfig(method="stocfl", tau=0.8)
    first = method_named(config).group(evidence(fan(0, 30, 80, 110)), config, None)
    assert first.labels.tolist() == [0, 0, 1, 1]
    kept = json.loads(json.dumps(first.kept))
    later = replace(evidence(fan(0, 0, 0, 0)), kept=kept, common_start=False)
    assert method_named(config).group(later, config, first.labels).labels.tolist() == [0, 0, 1, 1]
    low = ClusterConfig(method="stocfl", tau=0.1)
    assert method_named(low).group(later, low, first.labels).labels.tolist() == [0, 0, 0, 0]
    high = ClusterConfig(method="stocfl", tau=0.99)
    assert method_named(high).group(later, high, first.labels).labels.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(first.similarity[0, 1], np.cos(np.radians(30)))


@pytest.mark.parametrize("leaves", [1, 2])
def test_few_leaves(leaves):
    config = ClusterConfig(method="stocfl")
    found = method_named(config).group(evidence(fan(*[0, 90][:leaves])), config, None)
    assert found.labels.tolist() == list(range(leaves))
