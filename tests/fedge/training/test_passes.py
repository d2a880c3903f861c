"""Passes over windows: by hand, and what holds for any numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.training.passes import mean_of_passes, mean_steps, steps_of_passes, windows_seen

SOME = st.integers(1, 200)


def test_a_small_client_begins_again_and_a_large_one_stops() -> None:
    """Seven steps of two windows: three windows make two steps a pass, forty make twenty."""
    assert steps_of_passes(windows=3, batch_size=2, epochs=1, steps=7) == [2, 2, 2, 1]
    assert windows_seen(windows=3, batch_size=2, epochs=1, steps=7) == 3 + 3 + 3 + 2
    assert steps_of_passes(windows=40, batch_size=2, epochs=1, steps=7) == [7]
    assert windows_seen(windows=40, batch_size=2, epochs=1, steps=7) == 14


@given(windows=SOME, batch_size=SOME, epochs=st.integers(1, 5), steps=st.integers(0, 300))
def test_steps_and_windows_are_those_of_the_passes(
    windows: int, batch_size: int, epochs: int, steps: int
) -> None:
    """A second count: batches of permutations until there are as many as asked for."""
    passes = steps_of_passes(windows, batch_size, epochs, steps)
    batches = [range(windows)[:batch_size]] * 0
    for count in passes:
        batches += [range(windows)[k * batch_size : (k + 1) * batch_size] for k in range(count)]
    assert all(len(batch) for batch in batches)
    assert len(batches) == (steps or epochs * -(-windows // batch_size))
    assert sum(map(len, batches)) == windows_seen(windows, batch_size, epochs, steps)


def test_steps_of_the_mean_client() -> None:
    """(30 + 90 + 33) / 3 = 51 windows: three batches of 25, in two epochs six steps."""
    assert mean_steps([30, 90, 33], batch_size=25, epochs=2) == 6
    assert mean_steps([1], batch_size=25, epochs=1) == 1
    assert mean_steps([], batch_size=25, epochs=1) == 1


def test_a_pass_that_stopped_counts_less() -> None:
    """30 windows in two batches of 20, then the first batch alone: (30 · 1 + 20 · 3.5) / 50."""
    assert mean_of_passes([1.0, 3.5], [2, 1], windows=30, batch_size=20) == pytest.approx(2.0)
    assert mean_of_passes([0.1, 0.7], [2, 2], windows=30, batch_size=20) == np.mean([0.1, 0.7])
