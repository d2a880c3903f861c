"""Links that a run shares, and the state that they keep."""

from dataclasses import replace

import pytest
from virtual_world import config_of

from fedge.config.registers.option import ConfigError
from fedge.devices.timeline.clock import Clock, Kind
from fedge.devices.timeline.network import DOWN, UP, SharedLinks

NONE = config_of().asynchrony
LEAF = replace(NONE, leaf_link_megabytes_s=1.0)


@pytest.mark.parametrize(
    ("config", "above", "links"),
    [(NONE, [], 0), (LEAF, [0.0], 6), (NONE, [2.0], 2), (LEAF, [2.0], 8), (NONE, [0.0, 3.0, 3.0], 4)],
)
def test_each_leaf_and_each_server_above_have_two(config, above, links):
    assert len(SharedLinks(config, 3, 100, above).links) == links


def test_no_two_links_have_one_number():
    network = SharedLinks(LEAF, 3, 100, [2.0, 0.0, 1.0])
    of_leaves = [network.of_leaf(leaf, way) for leaf in range(3) for way in (DOWN, UP)]
    above = [network.of_parent(parent, way) for parent in (0, 2) for way in (DOWN, UP)]
    assert of_leaves + above == list(range(10))
    assert [network.parent_of(link) for link in range(10)] == [None] * 6 + [0, 0, 2, 2]
    assert [network.is_shared(parent) for parent in range(3)] == [True, False, True]
    assert network.links[8].whole == network.links[6].whole // 2


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


def test_devices_receive_and_send_as_many_bytes_as_their_messages_have():
    """A megabyte a second: two megabytes down, half of one up; a model of one to the server above."""
    network, clock = SharedLinks(LEAF, 1, 10**6, [1.0], at_devices=(2 * 10**6, 5 * 10**5)), Clock()
    for link in (network.of_leaf(0, DOWN), network.of_leaf(0, UP), network.of_parent(0, UP)):
        network.join(link, 1, 1e9, clock)
    ends = [clock.next() for _ in range(3)]
    assert [(event.time_us, event.subject) for event in ends] == [
        (500_000, 1),
        (1_000_000, 3),
        (2_000_000, 0),
    ]


def test_models_beyond_its_sums_are_refused_where_something_is_shared():
    SharedLinks(NONE, 1, 10**10)
    with pytest.raises(ConfigError, match=r"at most 9 GB, but this one has 10\.0"):
        SharedLinks(LEAF, 1, 10**10)
