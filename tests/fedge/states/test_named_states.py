"""Arrays, numbers and states by name, as one state and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.states.named_states import first_difference, form_of, packed, unpacked

names = st.text("abc", min_size=1, max_size=3)
numbers = st.one_of(st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False))


@given(
    st.dictionaries(names, st.one_of(numbers, st.dictionaries(names, numbers.map(np.float64), min_size=1)))
)
def test_what_was_packed_comes_back(values):
    found = unpacked(packed(values, "memory"))
    assert found.keys() == values.keys()
    for name, value in values.items():
        if isinstance(value, dict):
            assert {key: float(array) for key, array in found[name].items()} == value
        else:
            assert found[name] == value
            assert type(found[name]) is type(value)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_nothing_changes_its_form_by_being_stored(kind, shape):
    """A norm in float32 is kept as a number; arrays keep their type."""
    once = packed({"norm": np.ones(shape, kind)[()], "v": {"n": np.ones(shape, kind)}}, "memory")
    assert form_of(packed(unpacked(once), "memory")) == form_of(once)
    assert once["v/n"].dtype == kind
    assert once["norm"].shape == shape


@pytest.mark.parametrize(
    "wrong", [{"v": "words"}, {"v": None}, {"a/b": 1.0}, {1: 1.0}, {"v": np.array("x")}, 5]
)
def test_other_things_are_refused(wrong):
    with pytest.raises(TypeError, match=r"memory must|memory 'v' must"):
        packed(wrong, "memory")


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(number):
    with pytest.raises(FloatingPointError, match="'v' is not finite"):
        packed({"v": {"w": np.array([1.0, number])}}, "memory")


def test_forms_are_compared():
    before = {"a": np.zeros(2), "n": np.array(1)}
    assert first_difference(before, {"a": np.ones(2), "n": np.array(5)}) == ""
    assert (
        first_difference(before, {"a": np.ones(3), "n": np.array(5)})
        == "'a' was float64 (2,) and became float64 (3,)"
    )
    assert first_difference(before, {"a": np.ones(2)}) == "'n' was int64 () and became absent"
    assert form_of(before)["n"] == ((), "<i8")
