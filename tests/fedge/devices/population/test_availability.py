"""When devices are there: shares of time, and answers that follow from (seed, device, time)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.registers.option import ConfigError
from fedge.devices.population.availability import FOREVER_US, always, diurnal, markov

TIMES = st.lists(st.integers(0, 10**9), min_size=1, max_size=30).map(sorted)
KINDS = [
    pytest.param(lambda: diurnal(3, 5, day_s=100.0, share=0.3), id="diurnal"),
    pytest.param(lambda: markov(3, 5, on_s=20.0, off_s=50.0), id="markov"),
]


def test_always():
    assert always(2, 0)(1, 12345) == (True, FOREVER_US)
    assert diurnal(2, 0, share=1.0)(0, 5) == (True, FOREVER_US)


@pytest.mark.parametrize("make", KINDS)
@given(times=TIMES)
def test_an_answer_holds_until_it_says_and_not_longer(make, times):
    """Whatever else was asked before; and at the end of that time it is the other one."""
    asked = make()
    for time in times:
        is_there, until = asked(1, time)
        assert until > time
        assert make()(1, time) == (is_there, until)
        fresh = make()
        assert fresh(1, until - 1) == (is_there, until)
        assert fresh(1, until)[0] != is_there


@pytest.mark.parametrize(("make", "share"), [(KINDS[0].values[0], 0.3), (KINDS[1].values[0], 20 / 70)])
def test_devices_are_there_for_their_share(make, share):
    there = make()
    asked = [there(device, time)[0] for time in range(0, 10**10, 10**7) for device in range(3)]
    assert np.mean(asked) == pytest.approx(share, abs=0.06)


def test_days_begin_at_times_of_their_own():
    there = diurnal(50, 5, day_s=100.0)
    assert 0 < sum(there(device, 0)[0] for device in range(50)) < 50


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: diurnal(1, 0, share=0.0), "availability-args.share must be a number of 1e-06 to 1"),
        (lambda: diurnal(1, 0, day_s="long"), "availability-args.day_s"),
        (lambda: markov(1, 0, on_s=0), "availability-args.on_s"),
        (lambda: markov(1, 0, off_s=float("inf")), "availability-args.off_s"),
    ],
)
def test_what_cannot_be_is_refused(act, words):
    with pytest.raises(ConfigError, match=words):
        act()
