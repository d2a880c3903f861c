import json
import resource
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from fedge.states.files import FileState, StateFileError, Ticket, open_state, state_bytes, write_state

DTYPES = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_]


def small():
    """A state of 4 + 8 + 12 bytes whose order is neither by name nor by size."""
    return {
        "weight": np.array([[1, 2, 3]], np.float32),
        "steps": np.array(7, np.int64),
        "bias": np.array([0.5], np.float32),
        "none": np.zeros((0, 2), np.float32),
    }


def test_the_file_by_hand(tmp_path):
    """The int64 lies first, then the float32; the header is in the state's order, padded to 8 bytes."""
    ticket = write_state(tmp_path / "s", small())
    content = (tmp_path / "s").read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    assert list(header) == ["weight", "steps", "bias", "none"]
    assert header["steps"] == {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}
    assert header["weight"] == {"dtype": "F32", "shape": [1, 3], "data_offsets": [8, 20]}
    assert header["none"] == {"dtype": "F32", "shape": [0, 2], "data_offsets": [24, 24]}
    assert content[8 + length :] == (
        np.array([7], "<i8").tobytes() + np.array([1, 2, 3, 0.5], "<f4").tobytes()
    )
    assert (ticket.path, ticket.array_bytes, state_bytes(small())) == (str(tmp_path / "s"), 24, 24)
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


STATES = st.dictionaries(
    st.text(max_size=5),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    ),
    max_size=5,
)


@given(STATES)
def test_any_state_comes_back_bit_for_bit(tmp_path_factory, state):
    """Names in order, shapes, dtypes and bytes, here and in the safetensors library."""
    path = tmp_path_factory.mktemp("any") / "s"
    opened = open_state(write_state(path, state))
    assert list(opened) == list(state)
    for found in (opened, load_file(path)):
        assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in found.items()} == {
            n: (a.dtype, a.shape, a.tobytes()) for n, a in state.items()
        }
    assert state_bytes(opened) == state_bytes(state)


def test_arrays_that_are_not_contiguous(tmp_path):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    state = {"fortran": np.asfortranarray(array), "strided": array[:, ::2, ::-1]}
    opened = open_state(write_state(tmp_path / "s", state))
    for name, expected in state.items():
        np.testing.assert_array_equal(opened[name], expected)


def test_what_is_mapped_is_read_only_and_outlives_its_file(tmp_path):
    opened = open_state(write_state(tmp_path / "s", small()))
    weight = opened["weight"]
    (tmp_path / "s").unlink()
    with pytest.raises(ValueError, match="read-only"):
        weight[0, 0] = 1
    np.testing.assert_array_equal(opened["weight"], small()["weight"])
    del opened
    np.testing.assert_array_equal(weight, small()["weight"])


def large(megabytes):
    """A state of ten entries."""
    rng = np.random.default_rng(0)
    return {f"layer{i}": rng.random(megabytes * 25_000, dtype=np.float32) for i in range(10)}


@pytest.mark.parametrize("position", [0, 9, 700, 1_000_000, -1])
def test_one_flipped_byte_is_found(tmp_path, position):
    """In the length, in the header, in the arrays of a file of 3 MB, at its very end."""
    ticket = write_state(tmp_path / "s", large(3))
    content = bytearray((tmp_path / "s").read_bytes())
    content[position] ^= 1
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(StateFileError, match="is damaged") as raised:
        open_state(ticket)
    assert ticket.path in str(raised.value)
    assert "\n" not in str(raised.value)
    content[position] ^= 1
    (tmp_path / "s").write_bytes(content)
    open_state(ticket)  # a failure is not remembered


@pytest.mark.parametrize("bytes_", [8, 4096, 2**20])
def test_exchanged_pieces_are_found(tmp_path, bytes_):
    """Two words, two rows of the checksum, two blocks change places: plain sums would not notice."""
    ticket = write_state(tmp_path / "s", large(4))
    content = bytearray((tmp_path / "s").read_bytes())
    one, two = slice(2**20, 2**20 + bytes_), slice(2**21, 2**21 + bytes_)
    if bytes_ < 2**20:
        two = slice(2**20 + 16 * bytes_, 2**20 + 17 * bytes_)  # in the same block
    content[one], content[two] = content[two], content[one]
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(StateFileError, match="checksum"):
        open_state(ticket)


@given(st.integers(1, 3000))
def test_a_truncated_file_is_found(tmp_path_factory, lost):
    path = tmp_path_factory.mktemp("cut") / "s"
    ticket = write_state(path, {"a": np.arange(500, dtype=np.float64)})
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(StateFileError, match="is damaged"):
        open_state(ticket)


@pytest.mark.parametrize("content", [b"", b"12", b"\xff" * 100, (2).to_bytes(8, "little") + b"[]"])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(StateFileError, match="has no safetensors header"):
        open_state(Ticket(str(tmp_path / "s"), "0", 0))


def test_a_file_that_is_gone(tmp_path):
    ticket = write_state(tmp_path / "gone", small())
    (tmp_path / "gone").unlink()
    with pytest.raises(StateFileError, match=r"cannot read state .*gone: No such file"):
        open_state(ticket)


def test_no_room(tmp_path):
    """Files may be 1 MB and the state is 3: one line, and nothing is left."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, limits[1]))
    try:
        with pytest.raises(StateFileError, match=r"cannot write state .*s: File too large"):
            write_state(tmp_path / "s", large(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone():
    with pytest.raises(StateFileError, match="No such file"):
        write_state(Path("nowhere") / "s", small())


def test_complex_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="'z' has dtype complex128"):
        write_state(tmp_path / "s", {"z": np.zeros(2, complex)})
    assert list(tmp_path.iterdir()) == []


def test_going_through_a_file_keeps_little_in_memory(tmp_path):
    """Checking and reading 160 MB entry by entry (16 MB each) adds less than 64 MB."""
    ticket = write_state(tmp_path / "s", large(160))
    before, most = psutil.Process().memory_info().rss, 0
    opened = FileState(ticket)
    opened.check()
    most = psutil.Process().memory_info().rss
    for name in opened:
        opened[name].sum()
        most = max(most, psutil.Process().memory_info().rss)
    assert (most - before) / 1e6 < 64
