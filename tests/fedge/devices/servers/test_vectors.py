"""States as vectors and back: same bits, counters beside."""

import numpy as np
import pytest
from any_states import states
from hypothesis import given

from fedge.devices.servers.vectors import Layout, version_of


@given(states())
def test_a_state_comes_back_with_its_bits(state):
    layout = Layout(state)
    vector, counters = layout.vector(state), layout.counters(state)
    back = layout.state(vector, counters)
    assert list(back) == list(state)
    for name, array in state.items():
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape
        assert np.array_equal(back[name], array, equal_nan=array.dtype.kind == "f")
    assert not vector.flags.writeable


def test_a_version_is_one_object_for_all():
    version = version_of({"w": np.ones((2, 2), np.float32), "n": np.array(3)})
    assert version.state is version.state
    assert version.record is version.record
    assert version.nbytes == 16 + 8
    assert np.shares_memory(version.state["w"], version.vector)
    with pytest.raises(ValueError, match="read-only"):
        version.vector[0] = 2


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [((np.float32,), np.float32), ((np.float16,), np.float32), ((np.float32, np.float64), np.float64)],
)
def test_a_vector_loses_no_digit(kinds, dtype):
    state = {str(number): np.ones(2, kind) for number, kind in enumerate(kinds)}
    assert Layout(state).dtype == dtype
