import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.registers.option import ConfigError
from fedge.config.sections.hierarchy import HierarchyConfig
from fedge.config.topology import clients_per_leaf, places_per_leaf, refuse_more_places_than_devices


def hierarchy(num_servers, text="auto"):
    return HierarchyConfig(num_servers=num_servers, clients_per_server=text)


def test_by_hand():
    """9 over 3: 3 each. 10 over 4: 10 = 4·2 + 2, so the first two leaves get a third client."""
    assert clients_per_leaf(hierarchy(3), 9) == [3, 3, 3]
    assert clients_per_leaf(hierarchy(4), 10) == [3, 3, 2, 2]
    assert clients_per_leaf(hierarchy(1), 9) == [9]
    assert clients_per_leaf(hierarchy(3, " 4, 3,2 "), 9) == [4, 3, 2]


@given(st.integers(1, 50), st.integers(0, 200))
def test_auto_deals_everyone_evenly(num_servers, more):
    sizes = clients_per_leaf(hierarchy(num_servers), num_servers + more)
    assert len(sizes) == num_servers
    assert sum(sizes) == num_servers + more
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_a_list_means_what_it_says(sizes):
    assert clients_per_leaf(hierarchy(len(sizes), ",".join(map(str, sizes))), sum(sizes)) == sizes


@pytest.mark.parametrize("text", ["", "3,,3", "3,0,6", "3;3;3", "-3,6,6", "3.0,3,3", "three", "3,3,3,"])
def test_what_is_no_list_of_numbers_is_refused(text):
    with pytest.raises(ConfigError) as caught:
        clients_per_leaf(hierarchy(3, text), 9)
    message = str(caught.value)
    assert message.startswith('hierarchy.clients-per-server must be "auto" or positive whole numbers')
    assert f"but is {text!r}; set for example" in message


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(
        ConfigError, match=r"names 2 and hierarchy.num-servers is 3; set one to fit the other"
    ):
        clients_per_leaf(hierarchy(3, "4,5"), 9)
    with pytest.raises(ConfigError, match=r"'4,3,3' adds up to 10 and there are 9; change it"):
        clients_per_leaf(hierarchy(3, "4,3,3"), 9)
    with pytest.raises(ConfigError, match="but is 10 for 9 clients; lower it"):
        clients_per_leaf(hierarchy(10), 9)


@given(st.integers(1, 60), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_what_too_many_places_are_told_is_the_most_that_fit(concurrency, known):
    def fits(places):
        of_leaves = zip(places_per_leaf(places, len(known)), known, strict=True)
        return all(0 < each <= there for each, there in of_leaves)

    if fits(concurrency):
        refuse_more_places_than_devices(concurrency, known)
        return
    with pytest.raises(ConfigError) as raised:
        refuse_more_places_than_devices(concurrency, known)
    said = int(re.search(r"set asynchrony\.concurrency=(\d+)", str(raised.value)).group(1))
    assert said == max(filter(fits, range(1, 100))) or (concurrency < len(known) and said == len(known))


def test_a_leaf_without_devices_needs_one():
    with pytest.raises(ConfigError, match="give every leaf a client that trains"):
        refuse_more_places_than_devices(4, [3, 0])
