"""Wishes for a leaf round: who gets which client's update, under which child's number."""

import numpy as np

from fedge.clustering.likeness.updates import Updates
from fedge.rounds.measurements.requests import Receiver, Requests

START = {"w": np.zeros(2, np.float32)}


def receiver(child_of):
    return Receiver(Updates(START, ["w"], 1), child_of)


def test_two_servers_above_a_leaf_get_its_updates_under_their_own_children_s_numbers():
    """Leaf 3 is the second child of a region, which is the cloud's first."""
    cloud, region = receiver({2: 0, 3: 0, 4: 1}), receiver({2: 0, 3: 1})
    wanted = Requests([cloud, region])
    assert [each is cloud for each in wanted.receivers_of(4)] == [True]
    for each in wanted.receivers_of(3):
        each.note(7, 3, {"w": np.ones(2, np.float32)}, 5)
    cloud.take(8, 4, [np.ones(2), np.array([6.0])])
    assert cloud.updates.likeness().leaf_of.tolist() == [0, 1]
    assert region.updates.likeness().leaf_of.tolist() == [1]
    assert wanted.updates_of(3) is cloud.updates
    assert wanted.updates_of(9) is None
