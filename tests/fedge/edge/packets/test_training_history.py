"""Turns that cloud and leaf server tell each other: those that can be, and lies."""

import pytest

from fedge.edge.packets.plain_json import FactError
from fedge.edge.packets.training_history import check_turns
from fedge.leaf.training_history import Turns

ROWS = [[3, 2, 5, 1, 0.5], [4, 1, 5, 0, None]]
BEFORE = Turns.of_facts([[3, 1, 4, 0, None]])
NOW = (5, [3, 4], {3: 0.5})


def test_turns_that_follow_from_the_clients_asked():
    check_turns(ROWS, [3, 4, 5])
    check_turns(ROWS, [3, 4, 5], BEFORE, NOW)
    assert BEFORE.facts() == [[3, 1, 4, 0, None]]


def changed(row, at, value):
    rows = [list(each) for each in ROWS]
    rows[row][at] = value
    return rows


@pytest.mark.parametrize(
    "told",
    [
        None, 3, {}, [[3]], [[3, 1, 1, 1, 0.5, 0]], ROWS + ROWS, [ROWS[0], ROWS[0]],
        changed(0, 0, 9), changed(0, 0, "3"), changed(0, 0, True), changed(0, 1, -1), changed(0, 1, 10**10),
        changed(0, 2, 1.5), changed(0, 3, 3), changed(0, 3, 0), changed(0, 4, None), changed(1, 4, 0.5),
        changed(0, 4, float("nan")), changed(0, 4, float("inf")), changed(0, 4, "0.5"),
    ],
)  # fmt: skip
def test_turns_that_cannot_be(told):
    with pytest.raises(FactError, match="turns"):
        check_turns(told, [3, 4, 5])


@pytest.mark.parametrize(
    "told", [changed(0, 1, 3), changed(0, 2, 4), changed(0, 4, 0.25), ROWS[:1], [*ROWS, [5, 1, 5, 0, None]]]
)
def test_turns_that_do_not_follow(told):
    with pytest.raises(FactError, match="not those that follow"):
        check_turns(told, [3, 4, 5], BEFORE, NOW)
