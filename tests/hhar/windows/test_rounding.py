"""Numbers that float32 holds too coarsely: found whatever their unit, and none else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hhar.windows.rounding import coarse_words, too_coarse
from hhar.windows.window_file import Windows, as_format

X = np.random.default_rng(0).normal(size=(60, 3))


def windows(x, y=None):
    y = np.arange(len(x)) % 2 if y is None else y
    user = np.full(len(x), "a")
    return Windows(
        x, y, user, None, None, ("n",) if y.dtype.kind == "f" else ("p", "q"), tuple("abcdefg")[: x.shape[1]]
    )


@given(st.floats(-12, 17), st.floats(-12, 12))
def test_what_is_lost_is_said(offset, scale):
    """Whether the cast numbers still correlate with the given ones, for any offset and unit."""
    values = 10.0**offset + 10.0**scale * X[:, 0]
    cast = values.astype(np.float32)
    error = np.sqrt(np.mean((values - cast) ** 2)) / values.std() if np.ptp(values) else 0.0
    assert bool(too_coarse(values, cast)) == (error > 0.05)


@pytest.mark.parametrize("kind", ["float64", "int64", "int32", "uint32", "float16", "bool", "int8"])
@pytest.mark.parametrize("constant", [0, 1, 0.1])
def test_constants_and_small_types_lose_nothing(kind, constant):
    values = np.full(9, constant).astype(kind)
    assert too_coarse(values, values.astype(np.float32)) == ""


@pytest.mark.parametrize("kind", ["float64", "int64"])
@pytest.mark.parametrize("axes", [(), (5,), (2, 2)])
def test_the_channel_is_named_in_windows(kind, axes):
    x = np.broadcast_to(X.reshape(60, 3, *[1] * len(axes)), (60, 3, *axes)) * 100
    assert as_format(windows(x.astype(kind))).about["cast"] == f"x from {kind} to float32"
    x = x.copy()
    x[:, 1] = x[:, 1] / 100 + 1e10
    assert (
        ", too coarse for 'b' (steps of 1.02e+03, deviation "
        in as_format(windows(x.astype(kind))).about["cast"]
    )


def test_so_is_the_output_to_predict():
    y = 1e9 + X[:, 0]
    found = as_format(windows(X.astype(np.float32), y)).about["cast"]
    assert found.startswith("y from float64 to float32, too coarse for 'n' (steps of 64, deviation ")
    assert found.endswith("): subtract a constant first")


def test_several_are_counted():
    assert (
        coarse_words([("a", "x"), ("b", "y"), ("c", "")])
        == ", too coarse for 'a' (x) and 1 more: subtract a constant first"
    )
    assert coarse_words([("a", "")]) == ""
