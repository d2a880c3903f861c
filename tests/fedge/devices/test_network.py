"""Links that a run shares, and the state that they keep."""

from dataclasses import replace

import pytest
from virtual_world import config_of

from fedge.config.option import ConfigError
from fedge.devices.clock import Clock, Kind
from fedge.devices.network import DOWN, UP, SharedLinks

NONE = config_of().asynchrony
LEAF, CLOUD = replace(NONE, leaf_link_megabytes_s=1.0), replace(NONE, cloud_link_megabytes_s=2.0)
BOTH = replace(LEAF, cloud_link_megabytes_s=2.0)


@pytest.mark.parametrize(
    ("config", "leaves", "links"), [(NONE, 3, 0), (LEAF, 3, 6), (CLOUD, 3, 2), (CLOUD, 1, 0), (BOTH, 3, 8)]
)
def test_each_leaf_and_the_cloud_have_two(config, leaves, links):
    assert len(SharedLinks(config, leaves, 100).links) == links


def test_no_two_links_have_one_number():
    network = SharedLinks(BOTH, 3, 100)
    of_leaves = [network.of_leaf(leaf, way) for leaf in range(3) for way in (DOWN, UP)]
    of_cloud = [network.of_cloud(way) for way in (DOWN, UP)]
    assert sorted(of_leaves + of_cloud) == list(range(8))
    assert [network.is_of_cloud(link) for link in range(8)] == [False] * 6 + [True] * 2
    assert not SharedLinks(LEAF, 3, 100).is_of_cloud(5)


def test_an_end_that_was_planned_for_other_rates_is_void():
    """A megabyte alone would end after 1 s; another joins at once, so both end after 2 s."""
    network, clock = SharedLinks(LEAF, 1, 10**6), Clock()
    network.join(0, 5, 1e9, clock)
    network.join(0, 6, 1e9, clock)
    seen = []
    while len(clock):
        event = clock.next()
        assert event.kind == Kind.SENT
        seen.append((event.time_us, network.ended(event.subject, event.number, clock)))
    assert seen == [(1_000_000, []), (2_000_000, [5, 6])]


def test_models_beyond_its_sums_are_refused_where_something_is_shared():
    SharedLinks(NONE, 1, 10**10)
    with pytest.raises(ConfigError, match=r"at most 9 GB, but this one has 10\.0"):
        SharedLinks(LEAF, 1, 10**10)
