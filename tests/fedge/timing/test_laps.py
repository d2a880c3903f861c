import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.timing.laps import PHASES, LapClock

SECONDS = st.integers(0, 2**20).map(lambda n: n / 8)  # exact in binary: sums are not rounded


class FakeTime:
    """A clock that goes on by the given steps."""

    def __init__(self, steps=()):
        self.now = 0.0
        self._steps = iter(steps)

    def __call__(self):
        self.now += next(self._steps, 0)
        return self.now


def test_by_hand():
    """Started at 10; push until 13, wait until 20, push again until 21, the rest until 25."""
    times = iter([10.0, 13.0, 20.0, 21.0, 25.0])
    clock = LapClock(lambda: next(times))
    clock.lap("push")
    clock.lap("wait")
    clock.lap("push")
    laps = clock.finish()
    assert {phase: s for phase, s in laps.items() if s} == {"push": 4.0, "wait": 7.0, "other": 4.0}
    assert tuple(laps) == PHASES


@given(st.lists(st.tuples(st.sampled_from(PHASES), SECONDS), max_size=20), SECONDS)
def test_laps_sum_to_the_time_that_passed(laps, rest):
    time = FakeTime([100.0, *(step for _, step in laps), rest])
    clock = LapClock(time)
    for phase, _ in laps:
        clock.lap(phase)
    found = clock.finish()
    assert sum(found.values()) == time.now - 100.0
    for phase in set(PHASES) - {"other"}:
        assert found[phase] == sum(step for p, step in laps if p == phase)


def test_rounds_follow_each_other_without_a_gap():
    time = FakeTime((0, 1, 2, 4, 8))
    clock = LapClock(time)
    clock.lap("push")
    first = clock.finish()
    clock.lap("push")
    second = clock.finish()
    assert (first["push"], first["other"], second["push"], second["other"]) == (1, 2, 4, 8)
    assert sum(first.values()) + sum(second.values()) == time.now


def test_an_unknown_phase_is_refused():
    with pytest.raises(KeyError, match="lunch"):
        LapClock().lap("lunch")
