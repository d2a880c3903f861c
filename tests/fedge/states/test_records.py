"""States in Flower's records: the same memory, shapes, dtypes and order."""

import gc
import pickle

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedge.states.files import FileState, open_state, write_state
from fedge.states.records import (
    HeldArray,
    entries,
    from_record,
    record_bytes,
    record_of,
    store_record_arrays,
    to_record,
)
from fedge.states.state_files import SharedStates

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


def test_a_whole_file_comes_back_as_one(tmp_path):
    """And a part of it, or one among others, as arrays."""
    state = open_state(write_state(tmp_path / "s.safetensors", STATE))
    assert from_record(to_record(state)) is state
    for other in (
        to_record(state, ["a.count"]),
        to_record(state, ["a.count", "b.weight"]),
        record_of(
            ArrayRecord,
            {**entries(to_record(state, ["b.weight"])), **entries(to_record(STATE, ["a.count"]))},
        ),
    ):
        found = from_record(other)
        assert type(found) is dict
        assert all(np.array_equal(found[name], STATE[name]) for name in found)


@pytest.fixture
def keep(tmp_path):
    """A keeper of states above 20 bytes in files of a folder."""
    shared = SharedStates(tmp_path, in_one_process=True)
    shared.prepare(20, 32, 1000)
    yield shared.keep
    shared.close()


def foreign(state):
    """A record as Flower has received it: bytes."""
    return record_of(ArrayRecord, {name: Array(array) for name, array in state.items()})


def files(folder):
    return [path.name for path in folder.glob("*/*") if path.name != "owner"]


def test_a_record_of_bytes_is_put_aside(tmp_path, keep):
    """Names, order, shapes and dtypes stay; its file goes with it."""
    record = store_record_arrays(foreign(STATE), keep)
    assert files(tmp_path) == ["server-1"]
    found = from_record(record)
    assert isinstance(found, FileState)
    assert list(found) == list(STATE)
    for name, array in STATE.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
    del record, found
    gc.collect()
    assert files(tmp_path) == []
    small = foreign({"w": np.zeros(5, np.float32)})
    assert store_record_arrays(small, keep) is small


def told(array, **changes):
    """An array of Flower's that says something else of itself."""
    made = Array(array)
    made.__dict__.update(changes)
    return made


@pytest.mark.parametrize(
    "entry",
    [
        told(np.zeros(100, np.float32), shape=(50,)),
        told(np.zeros(100, np.float32), dtype="float64"),
        told(np.zeros(100, np.float32), dtype="no dtype"),
        told(np.zeros(100, np.float32), dtype="object"),
        told(np.zeros(100, np.float32), data=b"no array"),
        told(np.zeros(100, np.float32), stype="pickle"),
        Array(np.zeros(100, ">f4")),
    ],
    ids=["shape", "dtype", "no dtype", "object", "bytes", "kind", "byte order"],
)
def test_what_no_file_can_hold_stays_for_its_reader_to_refuse(tmp_path, keep, entry):
    for name, other in (("x", entry), ("__metadata__", Array(np.zeros(100, np.float32)))):
        record = record_of(ArrayRecord, {"w": Array(np.ones(100)), name: other})
        assert store_record_arrays(record, keep) is record
        assert files(tmp_path) == []
    fine = store_record_arrays(foreign({"w": np.ones(100)}), keep)  # nothing was given up over it
    assert isinstance(from_record(fine), FileState)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3), np.array(7), np.zeros((0, 3)), np.array([True, False]),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(12.0)[::2], np.float64(2.5),
    ],
    ids=["2d", "0d", "empty", "bool", "fortran", "strided", "scalar"],
)  # fmt: skip
def test_the_bytes_are_flower_s_own(array):
    """Those of `numpy.save`."""
    assert HeldArray(array).data == Array(np.asarray(array)).data
