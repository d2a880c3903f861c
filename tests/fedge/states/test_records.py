"""States in Flower's records: the same memory, shapes, dtypes and order."""

import pickle

import numpy as np
from flwr.app import ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedge.states.files import open_state, write_state
from fedge.states.records import entries, from_record, record_bytes, to_record

STATE = {"b.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "a.count": np.array(7, dtype=np.int64)}


def test_a_record_is_the_same_memory():
    back = from_record(to_record(STATE))
    assert list(back) == list(STATE)
    assert np.shares_memory(back["b.weight"], STATE["b.weight"])
    assert back["a.count"].shape == ()
    assert record_bytes(to_record(STATE)) == 6 * 4 + 8


def test_some_entries():
    assert list(to_record(STATE, ["a.count"])) == ["a.count"]


@given(arrays(np.float64, array_shapes(min_dims=0, max_dims=3, max_side=4), elements=st.floats(-1e9, 1e9)))
def test_flower_reads_it_as_its_own(array):
    """Serialised by Flower and read back, and pickled as Ray does: the same bits."""
    record = to_record({"x": array})
    plain = ArrayRecord(record.to_numpy_ndarrays())
    for other in (plain.to_numpy_ndarrays()[0], pickle.loads(pickle.dumps(record))["x"].numpy()):
        assert other.dtype == array.dtype
        np.testing.assert_array_equal(other, array)
    assert entries(record)["x"].shape == array.shape


def test_entries_of_a_file_are_read_when_looked_at(tmp_path):
    ticket = write_state(tmp_path / "s.safetensors", STATE)
    record = to_record(open_state(ticket))
    assert record_bytes(record) == 32
    np.testing.assert_array_equal(from_record(record)["b.weight"], STATE["b.weight"])
