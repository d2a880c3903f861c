"""States that are one object, and equal ones that are not."""

import numpy as np

from fedge.states.distinct import DistinctContents, DistinctStates, StateCache
from fedge.states.lazy_state import RemoteState


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


def test_distinct_contents_are_those_of_equal_states_too():
    """A number between the samples differs, a sign of zero, a dtype, a shape, a name: other contents."""
    zeros, between = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
    between[501] = 1
    others = [
        {"w": between}, {"w": -zeros}, {"w": zeros.astype(np.float64)}, {"w": zeros.reshape(10, 100)},
        {"v": zeros}, {"w": zeros, "v": zeros}, {"w": np.full(1000, np.nan, np.float32)}, {},
    ]  # fmt: skip
    found = DistinctContents([{"w": zeros}, *others, {"w": zeros.copy()}, *({**other} for other in others)])
    assert [one is other for one, other in zip(list(found)[1:], others, strict=True)] == [True] * len(others)
    assert {"w": zeros[::-1]} in found
    assert {"w": zeros + 1} not in found


def test_states_of_another_process_are_told_apart_although_their_entries_are_not_known():
    zeros = {"w": np.zeros(3)}
    first, second = RemoteState("fold-1", zeros), RemoteState("fold-2", zeros)
    assert list(DistinctContents([zeros, first, second, first])) == [zeros, first, second]
    assert first not in DistinctContents([zeros])
