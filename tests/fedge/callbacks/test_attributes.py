"""Attributes of a callback come back from a checkpoint as they were, or are named as lost."""

import json
from collections import Counter, defaultdict, deque
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.callbacks.attributes import decode_value, encode_value, kept_attributes, unrestored_digests

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
hashable = st.recursive(plain, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(hashable | st.sampled_from(["\0table", "\0tuple"]), inner, max_size=3)
    ),
    max_leaves=12,
)


def said(value):
    """A value with its types, and a table's order."""
    if isinstance(value, dict):
        return [dict, [(said(key), said(each)) for key, each in value.items()]]
    if isinstance(value, list | tuple):
        return [type(value), [said(each) for each in value]]
    return [type(value), value]


@given(values)
def test_every_value_comes_back_with_its_types_and_order(value):
    assert said(decode_value(json.loads(json.dumps(encode_value(value))))) == said(value)


@pytest.mark.parametrize("number", [np.float64(0.5), np.int64(3), np.bool_(True)])
def test_numbers_of_numpy_come_back_as_python_s(number):
    assert said(decode_value(encode_value({"best": number}))) == said({"best": number.item()})


@pytest.mark.parametrize(
    "value",
    [
        Counter({1: 2}),
        defaultdict(int),
        deque([1]),
        {1, 2},
        np.zeros(2),
        np.float32(1),
        [object()],
        {"a": {1}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_come_back_as_something_else_is_none(value):
    with pytest.raises(TypeError, match="neither number"):
        encode_value(value)
    callback = SimpleNamespace(seen=value, rounds=2)
    assert kept_attributes(callback) == {"rounds": 2}
    assert list(unrestored_digests(callback)) == ["seen"]


def test_a_state_dict_may_have_derived_classes():
    assert decode_value(encode_value({"seen": Counter({3: 2})}, exact=False)) == {"seen": {3: 2}}


def test_what_nobody_can_compare_is_nothing():
    assert unrestored_digests(SimpleNamespace(act=lambda: None)) == {}
    assert unrestored_digests(object()) == {}


def test_large_attributes_are_not_read_to_be_compared():
    small, large = np.zeros(2**18), np.zeros(2**22)
    callback = SimpleNamespace(small=small, large=large)
    before = unrestored_digests(callback)
    assert list(before) == ["small"]
    small[-1] = 1
    after = unrestored_digests(callback)
    assert after["small"] != before["small"]
    assert len(after["small"]) == 32
