"""Virtual time of rounds by hand: regions over leaves with one client each, whose jobs take 1, 3 and 10 s."""

import json

from flwr.serverapp.strategy import FedAvg

from fedge.cloud.region import servers_over
from fedge.config.flat import from_run_config
from fedge.leaf.leaf import Leaf
from fedge.rounds.measurements.results import Traffic
from fedge.rounds.measurements.virtual_time import VirtualTime, bytes_between_servers

JOBS = {0: 1.0, 1: 3.0, 2: 10.0}


class ByHand:
    """A byte of a client takes 0.1 s up, none down; between servers a byte takes a second; a job 2 J."""

    power = 2.0
    further = 0  # how much longer an edge of the next tier is

    def job(self, client, attempt, down_bytes, up_bytes):
        return JOBS[client] * attempt + 0.1 * up_bytes, self.power

    def link(self, nbytes, tier):
        return float(nbytes) * (1 + self.further * tier)


def begun(tree):
    """Time 0, and the cloud's children."""
    leaves = [Leaf(i, {i: 1}, {}, ["w"], FedAvg(), 0) for i in range(3)]
    branches = servers_over(from_run_config({"hierarchy.tree": tree, "scaffold.enabled": False}), leaves)
    return VirtualTime(ByHand(), branches), branches


def test_a_leaf_round_takes_as_long_as_its_slowest_client():
    """10 bytes up of each of three clients: 1 s each."""
    leaves = [Leaf(0, {0: 1, 1: 1, 2: 1}, {}, ["w"], FedAvg(), 0)]
    time = VirtualTime(ByHand(), leaves)
    time.train({0, 1, 2}, up_bytes=10, down_bytes=33)
    assert (time.now_s, time.joules) == (11.0, 6.0)
    time.train({0, 1}, up_bytes=0, down_bytes=0)  # both for the second time: 2 and 6 s
    assert (time.now_s, time.joules) == (17.0, 10.0)
    time.train((), up_bytes=0, down_bytes=0)
    assert time.now_s == 17.0


def test_regions_wait_for_their_own_leaves_and_the_cloud_for_all():
    """Region 0 is there at 3 + 4 s, its leaves at 11; region 1 at 14, its leaf at 18; the cloud at 23."""
    time, branches = begun("((1,1),(1))")
    time.train({0, 1, 2}, up_bytes=0, down_bytes=0)
    for region in branches:
        time.aggregate(region.below, {leaf.path: Traffic(up=4, down=4) for leaf in region.below})
    assert json.loads(json.dumps(time.facts()))["at"] == [[0, 11.0], [1, 11.0], [2, 18.0]]
    time.aggregate(branches, {(0,): Traffic(5, 6), (1,): Traffic(5, 6), (0, 0): Traffic(0, 6)})
    # down to region 0 it takes 6 s, and 6 more to its first leaf
    assert time.facts()["at"] == [(0, 35.0), (1, 29.0), (2, 29.0)]
    assert time.now_s == 35.0


def test_nobody_waits_where_nothing_moves():
    """A round without a cloud step, or one leaf alone."""
    time, branches = begun("((1,1),(1))")
    time.train({0, 1, 2}, up_bytes=0, down_bytes=0)
    time.aggregate(branches, {})
    assert time.facts()["at"] == [(0, 1.0), (1, 3.0), (2, 10.0)]


def test_it_goes_on_where_it_was(monkeypatch):
    time, _ = begun("((1,1),(1))")
    time.train({0, 2}, up_bytes=0, down_bytes=0)
    again, _ = begun("((1,1),(1))")
    again.restore(json.loads(json.dumps(time.facts())))
    for each in (time, again):
        each.train({0, 1, 2}, up_bytes=1, down_bytes=1)
    assert again.facts() == time.facts()
    monkeypatch.setattr(ByHand, "power", None)
    unknown, _ = begun("((1,1),(1))")
    unknown.train({0, 2}, up_bytes=0, down_bytes=0)
    assert unknown.joules is None


def test_bytes_since_a_moment():
    before = {(0,): Traffic(1, 2)}
    assert bytes_between_servers({(0,): Traffic(4, 2), (1,): Traffic(5, 6)}, before) == {
        (0,): Traffic(3, 0), (1,): Traffic(5, 6)
    }  # fmt: skip


def test_leaves_meet_at_the_cloud():
    """The slowest is there at 10 + 7 s."""
    leaves = [Leaf(i, {i: 1}, {}, ["w"], FedAvg(), 0) for i in range(3)]
    time = VirtualTime(ByHand(), leaves)
    time.train({0, 1, 2}, up_bytes=0, down_bytes=0)
    time.aggregate(leaves, {(i,): Traffic(7, 1) for i in range(3)})
    assert time.facts()["at"] == [(0, 18.0), (1, 18.0), (2, 18.0)]


def test_every_edge_takes_the_time_of_its_tier(monkeypatch):
    """Edges below regions are twice as long: region 0 is there at 3 + 8 s, region 1 at 10 + 8."""
    monkeypatch.setattr(ByHand, "further", 1)
    time, branches = begun("((1,1),(1))")
    time.train({0, 1, 2}, up_bytes=0, down_bytes=0)
    for region in branches:
        time.aggregate(region.below, {leaf.path: Traffic(up=4, down=4) for leaf in region.below})
    assert time.facts()["at"] == [(0, 19.0), (1, 19.0), (2, 26.0)]
    # up to the cloud 5 s, there at 31; down to region 0 6 s and 12 to its first leaf
    time.aggregate(branches, {(0,): Traffic(5, 6), (1,): Traffic(5, 6), (0, 0): Traffic(0, 6)})
    assert time.facts()["at"] == [(0, 49.0), (1, 37.0), (2, 37.0)]
