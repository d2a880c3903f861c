"""The time that is left of a sweep, worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.sweep.progress import SweepPace, run_line, seconds_left


@pytest.fixture
def pace():
    """Kind "slow" took 100 s for 10 rounds, "fast" 30 s for 30 rounds."""
    pace = SweepPace()
    pace.observe("slow", 60.0, 6)
    pace.observe("slow", 40.0, 4)
    pace.observe("fast", 30.0, 30)
    return pace


def test_a_run_takes_as_long_as_others_of_its_kind(pace):
    """Another kind: 130 s for 40 rounds."""
    assert pace.expect("slow", 5) == 50.0
    assert pace.expect("fast", 5) == 5.0
    assert pace.expect("new", 8) == 26.0


def test_nothing_is_known_before_the_first_run_and_of_runs_that_did_no_round():
    assert SweepPace().expect("any", 3) is None
    pace = SweepPace()
    pace.observe("broken", 2.0, 0)
    assert pace.expect("broken", 3) is None
    assert seconds_left(pace, {"r": ("broken", 3, 1.0)}, [], 2) is None
    assert seconds_left(pace, {}, [("broken", 3)], 2) is None
    pace.observe("good", 6.0, 2)
    assert pace.expect("broken", 3) == 9.0


def test_two_at_a_time_by_hand(pace):
    """One has 30 of 50 s to go, the other is overdue; then 20 s, 5 s: 0+20, 20+5 → 30 s are left."""
    running = {"a": ("slow", 5, 20.0), "b": ("fast", 5, 9.0)}
    assert seconds_left(pace, running, [("slow", 2), ("fast", 5)], 2) == 30.0
    assert seconds_left(pace, running, [("slow", 2), ("slow", 2)], 2) == 40.0
    assert seconds_left(pace, {}, [], 2) == 0.0


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 4))
def test_time_left_is_between_its_bounds(rounds, jobs):
    """At least the longest run and an even split of the work, at most one after the other."""
    pace = SweepPace()
    pace.observe("k", 1.0, 1)
    left = seconds_left(pace, {}, [("k", r) for r in rounds], jobs)
    assert max(max(rounds), sum(rounds) / jobs) <= left <= sum(rounds)


def test_the_line_of_a_run():
    line = run_line(3, 12, "fedge-seed1", 13, "completed", ("accuracy", "0.9123", "0.8000"), 61.0, 3725.0)
    assert line == (
        " 3/12  fedge-seed1    completed  accuracy 0.9123  worst 0.8000  1 min 01 s  left 1 h 02 min"
    )
    assert run_line(1, 2, "a", 1, "failed", ("RMSE", "–", "–"), 0.5, None).endswith("worst –  0.5 s")
