"""Roster of idle devices: kept up as they come and go, whatever happens in between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.registers.option import ConfigError
from fedge.devices.population.availability import FOREVER_US, diurnal, markov
from fedge.devices.population.roster import Roster


def test_devices_come_and_go_at_their_own_times():
    """Of a day of 10 µs device 0 is there from 0 to 3, device 1 from 5 to 8, device 2 always."""
    days = {0: (0, 3), 1: (5, 8)}

    def presence(device, now_us):
        if device == 2:
            return True, FOREVER_US
        begin, end = days[device]
        day, hour = divmod(now_us, 10)
        if hour < begin:
            return False, 10 * day + begin
        return (True, 10 * day + end) if hour < end else (False, 10 * (day + 1) + begin)

    roster = Roster([0, 1, 2], presence)
    assert (list(roster.there), list(roster.away), roster.next_change_us()) == ([0, 2], [1], 3)
    roster.advance(4)
    assert (list(roster.there), roster.next_change_us()) == ([2], 5)
    roster.advance(12)  # 1 came at 5 and went at 8, 0 came at 10
    assert (list(roster.there), list(roster.away), len(roster)) == ([2, 0], [1], 3)
    assert roster.take(0, 12) == 13
    roster.put(0, 14)
    assert sorted(roster.away) == [0, 1]
    assert Roster([2], presence).next_change_us() is None


@given(
    st.sampled_from([
        lambda: diurnal(6, 1, day_s=0.001, share=0.5), lambda: markov(6, 1, on_s=0.002, off_s=0.001),
    ]),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 5), st.booleans()), max_size=30),
)  # fmt: skip
def test_whatever_happens_who_is_there_is_known(presence, steps):
    """After any times, with devices at work in between; and a roster that is restored goes on as it was."""
    now_us, at_work, roster = 0, set(), Roster(range(6), presence())
    for later_us, device, is_saved in steps:
        now_us += later_us
        roster.advance(now_us)
        if device in at_work:
            at_work.remove(device)
            roster.put(device, now_us)
        elif device in roster.there:
            at_work.add(device)
            assert roster.take(device, now_us) > now_us
        truth = presence()
        for each in set(range(6)) - at_work:
            assert (each in roster.there) == truth(each, now_us)[0]
            assert (each in roster.away) != (each in roster.there)
        if is_saved:
            facts, roster = roster.facts(), Roster(range(6), presence())
            roster.restore(facts, range(6))
            assert roster.facts() == facts


def test_a_presence_that_never_ends_a_moment_is_refused():
    with pytest.raises(ConfigError, match="must say until when a device is there or away, a time to come"):
        Roster([0], lambda device, now_us: (True, now_us))
