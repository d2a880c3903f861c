"""Headers and arrays of `.npy` files: as NumPy reads them, without Python's parser."""

import ast
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hhar.npy import Header, map_array, read_array, read_header

PLAIN = st.one_of(
    hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(sizes=(16, 32, 64)),
    hnp.boolean_dtypes(), hnp.unicode_string_dtypes(), hnp.byte_string_dtypes(),
)  # fmt: skip
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)


def written(array, version=None):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version, allow_pickle=False)
    stream.seek(0)
    return stream


@given(dtype=PLAIN, shape=SHAPES, fortran=st.booleans(), version=st.sampled_from([(1, 0), (2, 0)]))
def test_arrays_are_those_that_numpy_reads(dtype, shape, fortran, version):
    rng = np.random.default_rng(0)
    array = rng.integers(0, 9, shape).astype(dtype)
    array = np.asfortranarray(array) if fortran else array
    stream = written(array, version)
    found = read_array(stream, read_header(stream))
    stream.seek(0)
    wanted = np.lib.format.read_array(stream)
    assert (found.dtype, found.shape, found.flags.f_contiguous) == (
        wanted.dtype, wanted.shape, wanted.flags.f_contiguous,
    )  # fmt: skip
    np.testing.assert_array_equal(found, wanted)


@given(dtype=PLAIN, shape=SHAPES)
def test_python_s_parser_is_not_asked(dtype, shape):
    """It fails between threads under Python 3.11.7, so no header of an ordinary array may need it."""
    stream = written(np.zeros(shape, dtype))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "literal_eval", None)
        assert read_header(stream)[0] == shape


def test_a_header_by_hand():
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
    stream = io.BytesIO(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24))
    assert read_header(stream) == Header((2, 3), False, np.dtype("<f4"))
    assert stream.tell() == 10 + len(header)


def test_other_headers_are_numpy_s():
    array = np.zeros(2, dtype=[("a", "<f4"), ("b", "<i8")])
    assert read_header(written(array)) == Header((2,), False, array.dtype)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (b"PK", "expected 8 bytes"),
        (b"\x93NUMPY\x03\x00\x00", "must be of npy version 1.0 or 2.0, but is 3.0"),
        (b"\x93NUMPY\x01\x00\x05", "must be whole, is cut"),
        (b"\x93NUMPY\x01\x00\x05\x00{", "must be whole, is cut"),
        (b"\x93NUMPY\x01\x00\xff\xff", "at most 10000 bytes, but has 65535"),
    ],
)  # fmt: skip
def test_headers_that_are_none(given, rule):
    with pytest.raises(ValueError, match=rule):
        read_header(io.BytesIO(given))


def test_an_array_that_ends_early():
    stream = written(np.zeros(4))
    cut = io.BytesIO(stream.getvalue()[:-5])
    with pytest.raises(ValueError, match="must hold 32 bytes, but ends 5 bytes early"):
        read_array(cut, read_header(cut))


def test_mapped_arrays_cannot_be_written(tmp_path):
    array = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "x.npy", array)
    mapped = map_array(tmp_path / "x.npy")
    np.testing.assert_array_equal(mapped, array)
    assert type(mapped) is np.ndarray
    assert not mapped.flags.writeable


def test_an_empty_array_is_mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 3), np.float32))
    assert map_array(tmp_path / "x.npy").shape == (0, 3)


def test_a_mapped_array_in_fortran_order(tmp_path):
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.save(tmp_path / "x.npy", array)
    np.testing.assert_array_equal(map_array(tmp_path / "x.npy"), array)
