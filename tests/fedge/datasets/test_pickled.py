"""Pickles from elsewhere: arrays come out, and nothing that they name is run."""

import contextlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published import python_2_batch

from fedge.datasets.pickled import read_pickled
from hhar.errors import HharError

PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3)


def test_as_python_2_wrote_it(tmp_path):
    """The bytes are what NumPy itself reads as that array."""
    content = python_2_batch(PIXELS, [1, 2])
    assert np.array_equal(pickle.loads(content, encoding="bytes")[b"data"], PIXELS)
    (tmp_path / "p").write_bytes(content)
    found = read_pickled(tmp_path / "p", ("data", "labels", "batch_label"))
    assert np.array_equal(found["data"], PIXELS)
    assert found["labels"] == [1, 2]
    assert found["batch_label"] == b"training batch 1 of 5"


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_as_this_python_writes_it(tmp_path, protocol):
    (tmp_path / "p").write_bytes(pickle.dumps({"data": PIXELS, "labels": [1, 2]}, protocol))
    assert np.array_equal(read_pickled(tmp_path / "p", ["data"])["data"], PIXELS)


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_nothing_is_run(tmp_path, protocol):
    bait = tmp_path / "bait"
    content = pickle.dumps({"data": Touch(bait)}, protocol)
    pickle.loads(content)
    assert bait.exists()
    bait.unlink()
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(HharError, match="which is never loaded"):
        read_pickled(tmp_path / "p", ["data"])
    assert not bait.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n(tR.",
        b"cfedge.datasets.pickled\n_Kept\n.",
        b"\x80\x02\x82\x01.",  # the extension registry
        b"Pid\n.",  # a persistent id
    ],
)
def test_other_names_are_refused(tmp_path, content):
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(HharError, match="must be a pickle"):
        read_pickled(tmp_path / "p", ["data"])


@pytest.mark.parametrize(
    "array",
    [PIXELS.astype(np.float32), np.asfortranarray(PIXELS), np.array([object()]), PIXELS.view("V1")],
    ids=["floats", "by columns", "objects", "void"],
)
def test_arrays_of_bytes_only(tmp_path, array):
    content = pickle.dumps({"data": array}, 2) if array.dtype != object else pickle.dumps({"data": {1: 2}}, 2)
    (tmp_path / "p").write_bytes(content)
    if array.dtype == object:
        assert read_pickled(tmp_path / "p", ["data"]) == {"data": {1: 2}}
        return
    with pytest.raises(HharError, match="arrays must be of bytes"):
        read_pickled(tmp_path / "p", ["data"])


@given(st.data())
def test_any_change_of_a_byte_is_read_or_refused(tmp_path_factory, data):
    content = bytearray(python_2_batch(PIXELS, [1, 2]))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "changed"
    path.write_bytes(bytes(content))
    with contextlib.suppress(HharError):
        assert list(read_pickled(path, ["data", "labels"])) == ["data", "labels"]


@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    with contextlib.suppress(HharError):
        read_pickled(path, ["data"])
