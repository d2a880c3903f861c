"""Arrays from elsewhere: what is there, without pickles, and no larger than it is."""

import io
import zipfile

import numpy as np
import pytest

from hhar.npz import NpzError, read_npz


def archive(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    stream.seek(0)
    return stream


def test_arrays_come_as_they_were():
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.array(["a", "bc"])
    found = read_npz(archive(x=x, y=y, z=y), ["x"], ["y", "w"])
    assert found.keys() == {"x", "y"}
    np.testing.assert_array_equal(found["x"], x)
    assert found["x"].dtype == np.float32
    assert found["y"].tolist() == ["a", "bc"]


def test_what_is_missing_is_named():
    with pytest.raises(NpzError, match="must hold the arrays x, y, lacks y"):
        read_npz(archive(x=np.zeros(1)), ["x", "y"], [])


def test_pickles_are_never_loaded():
    with pytest.raises(NpzError, match="pickled objects, which are never loaded"):
        read_npz(archive(x=np.array([{}], dtype=object)), ["x"], [])


def test_a_header_that_lies_about_its_size():
    """A header of 10¹² numbers before eight bytes: refused before memory is taken."""
    member = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(member, header)
    member.write(b"\0" * 8)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("x.npy", member.getvalue())
    with pytest.raises(NpzError, match="x must be as large as its header says"):
        read_npz(stream, ["x"], [])
