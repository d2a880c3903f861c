"""The idle devices are a set whose order follows from what was taken and put back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.devices.population.idle import Idle


@given(st.lists(st.integers(0, 9), max_size=40))
def test_who_was_taken_is_gone_until_put_back(devices):
    idle, there = Idle(range(10)), set(range(10))
    for device in devices:
        if device in there:
            idle.take(device)
            there.remove(device)
        else:
            idle.put(device)
            there.add(device)
        assert sorted(idle) == sorted(there)
        assert sorted(idle.at(place) for place in range(len(idle))) == sorted(there)


def test_nobody_is_idle_twice():
    with pytest.raises(AssertionError, match="device 1"):
        Idle([1]).put(1)
