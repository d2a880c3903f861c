"""Turns of clients, counted by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.leaf.training_history import Turns


def test_turns_of_three_leaf_rounds():
    """Client 4 fails in round 2: it has had its turn, and its loss stays that of round 1."""
    turns = Turns()
    turns.note([4, 6], {4: 0.5, 6: 0.25}, 1)
    turns.note([4], {}, 2)
    turns.note([6], {6: 0.125}, 3)
    found = turns.candidates({6: 30, 4: 10, 5: 20})
    assert found.ids.tolist() == [4, 5, 6]
    assert found.windows.tolist() == [10, 20, 30]
    assert found.begun.tolist() == [2, 0, 2]
    assert found.given_in.tolist() == [2, 0, 3]
    assert found.updates.tolist() == [1, 0, 2]
    assert found.losses.tolist()[::2] == [0.5, 0.125]
    assert np.isnan(found.losses[1])


def test_what_a_selection_does_with_its_arrays_changes_nothing():
    turns = Turns()
    turns.note([4], {4: 0.5}, 1)
    before = turns.facts()
    for array in vars(turns.candidates({4: 10})).values():
        array[:] = 0
    assert turns.facts() == before


@pytest.mark.parametrize(
    "row",
    [[4, 1, 1, 1], [4, 1, 1, 1, 0.5, 0], [4.0, 1, 1, 1, 0.5], [4, -1, 1, 1, 0.5], [4, 1, 1, 1, "0.5"], []],
)
def test_facts_that_are_none_are_refused(row):
    with pytest.raises(ValueError, match=r"must be numbers|not enough values"):
        Turns.of_facts([row])


@given(st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.floats(0, 9)), max_size=6))
def test_facts_survive_json_to_the_bit(rounds):
    turns = Turns()
    for number, (asked, loss) in enumerate(rounds, 1):
        turns.note(asked, {client: loss / (1 + client) for client in asked if client % 2}, number)
    again = Turns.of_facts(json.loads(json.dumps(turns.facts())))
    assert again.facts() == turns.facts()
    for turn in (again, turns):
        turn.note([3], {3: 0.1}, 99)
    assert again.facts() == turns.facts()
