"""Common starts of leaves, and starts withheld from a method that needs them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.settings import CloudSetting
from fedge.cloud.starts import number_starts, usable
from fedge.clustering.likeness.evidence import NotComparable
from fedge.config.sections.cluster import ClusterConfig
from fedge.leaf.strategies.aggregation import Contribution


def state(value):
    return {"head": np.array([value, 1.0], np.float32)}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_leaves_are_alike_by_their_bits(values):
    began = number_starts([state(value) for value in values])
    assert all((began[i] == began[j]) == (a == b) for i, a in enumerate(values) for j, b in enumerate(values))
    assert began[0] == 0


@pytest.mark.parametrize(
    ("needs", "began", "labels", "seen"),
    [
        ({"starts"}, [0, 1, 2], None, True),
        ({"starts", "one-start"}, [0, 0, 0], None, True),
        ({"starts", "one-start"}, [0, 0, 1], [0, 0, 1], False),
        ({"starts", "cluster-start"}, [0, 0, 1], [0, 0, 1], True),
        ({"starts", "cluster-start"}, [0, 0, 1], None, False),
        ({"starts", "cluster-start"}, [0, 1, 1], [0, 0, 1], False),
    ],
)
def test_what_is_withheld(needs, began, labels, seen):
    starts = [state(value) for value in began]
    given_ = usable(starts, np.array(began), needs, None if labels is None else np.array(labels))
    if seen:
        assert given_ is starts
        return
    for look in (len, list, lambda withheld: withheld[0]):
        with pytest.raises(NotComparable, match="did not start from one model"):
            look(given_)


def steps(method, starts_by_round, **settings):
    """The labels and what was said of three leaves whose heads move by (2,0), (2,0.1), (-1,2)."""
    own = {"cfl": {"still_below": 9.0, "pull_above": 0.1}, "stocfl": {}}.get(method, {"split_round": 1})
    config = ClusterConfig(method=method, method_args=json.dumps(own), tau=0.5, **settings)
    aggregator = CloudAggregator(config, CloudSetting(("head",)))
    moves = np.array([[2, 0], [2, 0.1], [-1, 2]], np.float32)
    for number, starts in enumerate(starts_by_round, start=1):
        begun = aggregator.begin([state(value) for value in starts], number)
        ended = [{"head": state(value)["head"] + move} for value, move in zip(starts, moves, strict=True)]
        brought = [Contribution(leaf, model, 1.0, 1) for leaf, model in enumerate(ended)]
        step = begun.receive(brought, number).open().finish()
    return step.labels.tolist(), step.facts.get("skipped", "")


@pytest.mark.parametrize(
    ("method", "settings"),
    [("flhc", {}), ("kmeans", {"count": "2"}), ("stocfl", {}), ("cfl", {})],
)
def test_the_cloud_lets_no_method_compare_updates_from_different_starts(method, settings):
    """The bad case: a gate, `cluster.every`, or a late start has left the leaves with models of their own."""
    labels, said = steps(method, [[0.0, 5.0, -7.0]], **settings)
    assert (labels, "did not start from one model" in said) == ([0, 0, 0], True)
    assert steps(method, [[0.0, 0.0, 0.0]], **settings) == ([0, 0, 1], "")


def test_cfl_compares_inside_of_clusters_that_have_models_of_their_own():
    assert steps("cfl", [[0.0, 0.0, 0.0], [0.0, 0.0, 3.0]])[1] == ""


def test_stocfl_looks_at_starts_once():
    assert steps("stocfl", [[0.0, 0.0, 0.0], [0.0, 1.0, 3.0]]) == ([0, 0, 1], "")


def test_stocfl_begins_with_leaves_alone_whenever_it_can_compare_them():
    """Until then all leaves are one cluster, which none could leave: clusters of StoCFL never part."""
    assert steps("stocfl", [[0.0, 5.0, -7.0], [1.0, 1.0, 1.0]]) == ([0, 0, 1], "")


@pytest.mark.parametrize(("method", "settings"), [("flhc", {}), ("kmeans", {"count": "2"})])
def test_a_grouping_that_is_made_once_is_put_off_until_leaves_begin_alike(method, settings):
    """Due in round 1, from different starts: said, and made in the first round from one start, once."""
    apart, alike = [0.0, 5.0, -7.0], [0.0, 0.0, 0.0]
    labels, said = steps(method, [apart, apart], **settings)
    assert (labels, "did not start from one model" in said) == ([0, 0, 0], True)
    assert steps(method, [apart, apart, alike], **settings) == ([0, 0, 1], "")
    assert steps(method, [apart, alike, apart], **settings) == ([0, 0, 1], "")  # it compares no more
    assert steps(method, [alike, apart], **settings) == ([0, 0, 1], "")
