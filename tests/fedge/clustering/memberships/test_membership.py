"""Hysteresis and events."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.clustering.memberships.membership import Membership, event_description, events_between

ONE, TWO, OTHER = np.array([0, 0, 0, 0]), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
LABELS = st.lists(st.integers(0, 3), min_size=5, max_size=5).map(
    lambda labels: number_by_first_appearance(np.array(labels))
)


def settled(steps, patience):
    """The labels in force after each step."""
    membership = Membership()
    return ["".join(map(str, membership.settle(found, patience))) for found in steps]


def test_without_patience_labels_are_what_was_found():
    assert settled([TWO, ONE, OTHER], 1) == ["0011", "0000", "0101"]


def test_until_enough_steps_agree_all_are_one_cluster():
    assert settled([TWO, TWO, TWO, TWO], 3) == ["0000", "0000", "0011", "0011"]


def test_steps_must_agree_in_a_row():
    """Another candidate, or the groups in force, begin the count anew."""
    assert settled([TWO, OTHER, TWO, TWO], 2) == ["0000", "0000", "0000", "0011"]
    assert settled([TWO, ONE, TWO, TWO], 2) == ["0000", "0000", "0000", "0011"]


def test_a_single_odd_step_changes_nothing():
    assert settled([TWO, TWO, ONE, TWO, OTHER, TWO], 2) == ["0000", *["0011"] * 5]


def test_probes_and_other_steps_are_counted_apart():
    """A probe's groups wait for the next probe: steps in between neither confirm nor end them."""
    membership = Membership()
    membership.settle(TWO, 1)
    membership.settle(ONE, 2, probed=True)
    membership.settle(TWO, 2)
    assert membership.agreed == 1
    assert membership.settle(ONE, 2, probed=True).tolist() == [0, 0, 0, 0]
    membership.settle(TWO, 2, probed=True)
    assert membership.settle(TWO, 2).tolist() == [0, 0, 0, 0]
    assert (membership.agreed, membership.probed) == (1, False)


@given(
    st.lists(st.tuples(st.sampled_from([ONE, TWO, OTHER]), st.booleans()), max_size=16),
    st.integers(1, 3),
    st.integers(0, 16),
)
def test_a_restored_one_goes_on_alike(steps, patience, cut):
    """Facts survive JSON at any point."""
    whole, parts = Membership(), Membership()
    for at, (labels, probed) in enumerate(steps):
        if at == cut:
            facts = json.loads(json.dumps(parts.facts()))
            parts = Membership()
            parts.restore(facts)
        expected, found = (m.settle(labels, patience, probed) for m in (whole, parts))
        assert found.tolist() == expected.tolist()
    assert parts.facts() == whole.facts()


def test_a_change_that_waits_is_unsettled():
    membership = Membership()
    membership.settle(TWO, 2)
    assert membership.is_unsettled
    membership.settle(TWO, 2)
    assert not membership.is_unsettled


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([0, 0, 0, 0], [0, 0, 1, 1], ["leaves {0 1 2 3} split into {0 1} and {2 3}"]),
        ([0, 0, 1, 1], [0, 0, 0, 0], ["leaves {0 1} and {2 3} merged into {0 1 2 3}"]),
        ([0, 0, 0, 1], [0, 0, 1, 1], ["leaves moved: {0 1 2} and {3} became {0 1} and {2 3}"]),
        ([0, 0, 0, 0], [0, 1, 2, 2], ["leaves {0 1 2 3} split into {0}, {1} and {2 3}"]),
        ([0, 0, 1, 1], [1, 1, 0, 0], []),
        (
            [0, 0, 1, 2, 2],
            [0, 1, 2, 2, 2],
            ["leaves {0 1} split into {0} and {1}", "leaves {2} and {3 4} merged into {2 3 4}"],
        ),
    ],
)
def test_events_in_words(before, after, expected):
    assert [event_description(event) for event in events_between(before, after)] == expected


@given(LABELS, LABELS)
def test_events_name_every_leaf_that_changed_company_once(before, after):
    found = events_between(before, after)
    touched = [leaf for event in found for cluster in event["before"] for leaf in cluster]
    assert sorted(touched) == sorted(
        leaf for event in found for cluster in event["after"] for leaf in cluster
    )
    assert len(set(touched)) == len(touched)
    for leaf in range(5):
        was, now = (set(np.flatnonzero(labels == labels[leaf])) for labels in (before, after))
        assert (was == now) or leaf in touched
    assert bool(found) == (events_between(after, before) != [])
