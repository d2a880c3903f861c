"""States that are one object, and equal ones that are not."""

import numpy as np

from fedge.states.distinct import DistinctStates, StateCache


def state(value):
    return {"w": np.array([value])}


def test_a_state_is_worked_on_once():
    """Two equal states are two: 1, 1 again, and 2 for the other."""
    calls = []

    def number(of):
        calls.append(of)
        return len(calls)

    once, first, equal = StateCache(number), state(1.0), state(1.0)
    assert [once(first), once(equal), once(first)] == [1, 2, 1]
    assert len(calls) == 2


def test_what_is_known_lasts_though_nobody_else_holds_the_state():
    """A thousand states come and go; none of them meets what was made of another one."""
    once = StateCache(lambda of: float(of["w"][0]))
    assert [once(state(float(value))) for value in range(1000)] == [float(value) for value in range(1000)]


def test_distinct_states_keep_their_order():
    first, second = state(1.0), state(1.0)
    found = DistinctStates([second, first, second])
    assert [one is other for one, other in zip(found, (second, first), strict=True)] == [True, True]
    assert first in found
    assert state(1.0) not in found
    found.update([first, third := state(2.0)])
    assert len(list(found)) == 3
    assert list(found)[-1] is third
