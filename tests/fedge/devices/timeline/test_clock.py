"""Events come in the order of virtual time, then kind, then subject; a clock is plain records."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.devices.timeline.clock import Clock, Kind

EVENTS = st.tuples(st.integers(0, 50), st.sampled_from(list(Kind)), st.integers(0, 3), st.integers(0, 9))


@given(st.lists(EVENTS))
def test_events_come_in_order_however_they_were_noted(events):
    clock = Clock()
    for event in events:
        clock.schedule(*event)
    assert [tuple(clock.next()) for _ in events] == sorted(events)
    assert clock.events == len(events)
    assert len(clock) == 0


@given(st.lists(EVENTS, min_size=1), st.data())
def test_a_clock_goes_on_from_its_facts(events, data):
    clock = Clock()
    for event in events:
        clock.schedule(*event)
    for _ in range(data.draw(st.integers(0, len(events)))):
        clock.next()
    again = Clock(**json.loads(json.dumps(clock.facts())))
    assert (again.now_us, again.events) == (clock.now_us, clock.events)
    assert [again.next() for _ in range(len(again))] == [clock.next() for _ in range(len(clock))]


def test_nothing_happens_in_the_past():
    clock = Clock()
    clock.schedule(5, Kind.ARRIVE, 0)
    clock.next()
    with pytest.raises(AssertionError, match="4 µs"):
        clock.schedule(4, Kind.ARRIVE, 0)
