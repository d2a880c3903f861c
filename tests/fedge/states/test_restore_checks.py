"""Checks of restored state: each names the value, the rule and what it is, in one line."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.states import restore_checks

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_facts_that_come_back_are_taken(facts):
    restore_checks.refuse_unequal_facts(facts, facts)


@pytest.mark.parametrize(
    ("given", "back", "words"),
    [
        ({"a": 1}, {}, "a' must not be there"),
        ({}, {"a": 1}, "a must be there, but is missing"),
        ({"a": [1, 2]}, {"a": [1]}, "a must have 1 entries, but has 2"),
        ({"a": True}, {"a": 1}, "such as 1, but is True"),
        ({"a": {"b": [0.5]}}, {"a": {"b": ["x"]}}, "a.b[0] must"),
    ],
)
def test_the_first_difference_is_named(given, back, words):
    with pytest.raises(ValueError, match="must") as refused:
        restore_checks.refuse_unequal_facts(given, back)
    assert words in str(refused.value)


@pytest.mark.parametrize("value", [-1, 4, True, 1.0, None, "1", math.nan, 10**30])
def test_a_whole_number_out_of_its_range(value):
    with pytest.raises(ValueError, match=r"^clients must be a whole number in 0\.\.3, but is "):
        restore_checks.checked_int(value, "clients", 0, 4)
    assert restore_checks.checked_int(3, "clients", 0, 4) == 3


@pytest.mark.parametrize("value", [-0.5, math.nan, math.inf, None, "1", True])
def test_a_number_that_is_none(value):
    with pytest.raises(ValueError, match=r"^a norm must be a finite number of at least 0, but is "):
        restore_checks.checked_number(value, "a norm", 0)
    assert restore_checks.checked_number(2, "a norm", 0) == 2.0


@pytest.mark.parametrize("labels", [[1, 0], [0, 2], [0], [0, 0, 0], [-1, 0], "01"])
def test_labels_are_numbered_by_first_appearance(labels):
    with pytest.raises(ValueError, match=r"^labels must"):
        restore_checks.group_labels(labels, "labels", 2)
    assert restore_checks.group_labels([0, 1], "labels", 2).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("w"), "must have the entry 'w'"),
        (lambda state: state.update(v=state["w"]), "must have no entry 'v'"),
        (lambda state: state.update(w=state["w"][:1]), "w, must be float32 .2., but is float32 .1."),
        (lambda state: state.update(w=state["w"].astype(np.float64)), "but is float64"),
        (lambda state: state.update(w=np.array([1, np.nan], np.float32)), "w, must be finite"),
    ],
)
def test_a_state_of_another_form(change, words):
    like = {"w": np.zeros(2, np.float32)}
    state = dict(like)
    change(state)
    with pytest.raises(ValueError, match=words):
        restore_checks.state(state, like, "a model")
    assert restore_checks.state(like, like, "a model") is like


def test_states_that_nobody_gives_back():
    state = {"w": np.zeros(2)}
    for kept, back in (({"a": state}, {}), ({}, {"a": state}), ({"a": state}, {"a": {}})):
        with pytest.raises(ValueError, match=r"^state '?a"):
            restore_checks.refuse_other_states(kept, back)
