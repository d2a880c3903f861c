"""Selection of devices for work, by hand."""

from collections import Counter

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.devices.population.draws import PickDraws
from fedge.devices.population.idle import Idle
from fedge.devices.population.selection import DeviceTurn, History, balanced, oort, uniform, without_reuse


def history(windows=(1, 1, 1, 1), **known):
    found = History.of(np.array(windows, np.int64))
    for name, values in known.items():
        getattr(found, name)[:] = values
    return found


def counted(select, of, there=(0, 1, 2, 3), times=2000, places=2, **arguments):
    """How often each is picked."""
    turn = DeviceTurn(0, PickDraws(1, 0), places, given=6)
    return Counter(select(Idle(there), of, turn, **arguments) for _ in range(times))


def test_uniform_picks_each_as_often():
    found = counted(uniform, history(), there=(1, 3))
    assert set(found) == {1, 3}
    assert 900 < found[1] < 1100


def test_balanced_picks_among_those_with_the_fewest_jobs():
    found = counted(balanced, history(begun=[2, 1, 5, 1]))
    assert set(found) == {1, 3}
    assert 900 < found[1] < 1100
    assert set(counted(balanced, history(begun=[2, 1, 5, 1]), there=(0, 2))) == {0}


def test_without_reuse_nobody_works_more_often():
    assert set(counted(without_reuse, history(begun=[2, 1, 0, 0]))) == {2, 3}
    assert set(counted(without_reuse, history(begun=[2, 1, 2, 2]), times=1)) == {None}
    turn = DeviceTurn(0, PickDraws(1, 0), 2)
    assert without_reuse(Idle([0, 1]), history(begun=[2, 1, 0, 0]), turn, times=2) == 1
    with pytest.raises(ConfigError, match="times of a selection"):
        without_reuse(Idle([0]), history(), turn, times=0)


def test_oort_draws_new_devices_by_their_windows():
    """Nobody has brought anything: 1, 3, 0 and 4 windows."""
    found = counted(oort, history((1, 3, 0, 4)), times=4000)
    assert found[2] == 0
    assert found[3] / 4000 == pytest.approx(0.5, abs=0.03)
    assert found[1] / 4000 == pytest.approx(0.375, abs=0.03)


def test_oort_explores_as_often_as_it_should():
    """Device 0 has brought something; of others one is drawn with ε = max(0.3, 0.9 · 0.5^4)."""
    of = history(losses=[2.0, np.nan, np.nan, np.nan], seconds=[1.0, np.nan, np.nan, np.nan], given_in=1)
    found = counted(oort, of, times=4000, decay=0.5, least=0.3)
    assert 1 - found[0] / 4000 == pytest.approx(0.3, abs=0.03)
    assert set(counted(oort, of, there=(0,))) == {0}


def test_oort_prefers_who_loses_most_and_is_quick():
    """Round 4, all known, U = 4, 8, 8, 2: device 1 is as useful as 2 but a hundred times as quick."""
    of = history((2, 2, 2, 2), losses=[2.0, 4.0, 4.0, 1.0], seconds=[1.0, 1.0, 100.0, 1.0], given_in=2)
    assert set(counted(oort, of, places=1)) == {1}
    slow = history((2, 2, 2, 2), losses=[2.0, 4.0, 4.0, 1.0], seconds=1.0, given_in=2)
    assert set(counted(oort, slow, places=1)) == {1, 2}


def test_oort_comes_back_to_who_was_not_asked_for_long():
    """Equal losses: √(0.1 ln 7 / 1) = 0.44 for the one of round 1, √(0.1 ln 7 / 6) = 0.18 for the others."""
    of = history(losses=1.0, seconds=1.0, given_in=[6, 6, 1, 6])
    turn = DeviceTurn(0, PickDraws(1, 0), 1, given=6)
    assert {oort(Idle(range(4)), of, turn) for _ in range(99)} == {2}


def test_weights_of_nothing_are_even():
    turn = DeviceTurn(0, PickDraws(1, 0), 1)
    assert Counter(turn.one_of(np.zeros(3)) for _ in range(99)).keys() == {0, 1, 2}
    assert {turn.one_of(np.array([0.0, 2.0, 0.0])) for _ in range(99)} == {1}


@pytest.mark.parametrize(
    ("argument", "value"), [("least", -0.1), ("clip", "a"), ("alpha", -1.0), ("cut_off", 2)]
)
def test_what_cannot_be_is_refused(argument, value):
    with pytest.raises(ConfigError, match=f"{argument} of a selection must be a number"):
        oort(Idle([0]), history(), DeviceTurn(0, PickDraws(1, 0), 1), **{argument: value})
