"""Arrays of windows as nobody expects them, by a seed: types, orders of bytes, classes of arrays, odd names.

`HARMLESS` changes leave the values as they are, so windows are taken; of `ODD` ones some are refused.
"""

import os
import tempfile
import warnings
from dataclasses import replace

import numpy as np
import torch
from odd_archives import one_of

from hhar.windows.window_file import Windows


class OwnArray(np.ndarray):
    """An array class of a user's own."""


def honest(rng):
    """Windows of three users, two classes and two channels."""
    num = int(rng.integers(12, 30))
    y = np.arange(num) % 2
    user = np.array(list("abc"))[np.arange(num) // 2 % 3]
    x = rng.normal(size=(num, 2, 8)).astype(np.float32)
    session = np.array([f"{name}/{number}" for name, number in zip(user, y, strict=True)])
    return Windows(x, y, user, np.array(["p"] * num), session, ("w", "s"), ("u", "v"), {"source": "made up"})


def _memory_map(array):
    if array.dtype.kind == "O":  # its bytes are places in memory
        return array
    with tempfile.NamedTemporaryFile(dir=os.environ.get("TMPDIR")) as file:
        file.write(np.ascontiguousarray(array).tobytes())
        file.flush()
        return np.memmap(file.name, dtype=array.dtype, mode="r", shape=array.shape)


def _read_only(array):
    made = array.copy()
    made.setflags(write=False)
    return made


HARMLESS = (
    np.asfortranarray,
    _memory_map,
    _read_only,
    lambda array: np.repeat(array, 2, axis=0)[::2],
    lambda array: array[::-1].copy()[::-1],
    lambda array: array.view(OwnArray),
    lambda array: array.astype(array.dtype.newbyteorder(">")),
    lambda array: array.astype(object) if array.dtype.kind == "U" else array.astype(array.dtype, copy=True),
    lambda array: array.astype({"U": "U40", "O": "U40", "f": np.longdouble}.get(array.dtype.kind, "u8")),
)
ODD_ARRAYS = (
    lambda array: None,
    lambda array: array.tolist(),
    lambda array: torch.as_tensor(array) if array.dtype.kind != "U" else tuple(array),
    lambda array: np.ma.masked_array(array, mask=np.arange(array.size).reshape(array.shape) % 3 == 0),
    lambda array: np.ma.masked_array(array),
    lambda array: _matrix(array),
    lambda array: array[0],
    lambda array: np.array(array.flat[0]),
    lambda array: array[:-1],
    lambda array: array[:0],
    lambda array: array[:, None],
    lambda array: array[..., None],
    lambda array: array[..., :0],
    lambda array: array.astype(object),
    lambda array: np.array([[1], [1, 2]] * (len(array) // 2) + [[3]] * (len(array) % 2), dtype=object),
    lambda array: np.array([None] * len(array)),
    lambda array: array.astype("S") if array.dtype.kind == "U" else array.astype(complex),
    lambda array: np.zeros(len(array), dtype=[("a", "f4")]),
    lambda array: np.arange(len(array)).astype("M8[s]"),
    lambda array: np.arange(len(array)).astype("m8[s]"),
    lambda array: np.arange(len(array)),
    lambda array: np.full(array.shape, 2**64 - 1, dtype="u8"),
    lambda array: np.full(array.shape, -1),
    lambda array: np.zeros(array.shape, dtype=bool),
    lambda array: np.full(array.shape, np.nan),
    lambda array: np.full(array.shape, 1e300),
    lambda array: np.full(array.shape, "a\0b"),
    lambda array: _with(array, "a\0"),
    lambda array: _with(array, ""),
    lambda array: _with(array, "\x1b[2J"),
    lambda array: _with(array, "\ud800"),
    lambda array: _with(array, 5),
    lambda array: np.full(array.shape, 2**31, dtype="u4").view("U1"),  # no code point
    lambda array: np.broadcast_to(array[:1], array.shape),
    lambda array: array.dtype,
)
ODD_NAMES = (
    None, "ws", (), ("w",), ("w", "w"), ("w", "s", "t"), ["w", "s"], np.array(["w", "s"]), np.array("w"),
    (1, 2), (None, "s"),
    (b"w", "s"), ("w\0", "w"), ("w\n", "s"), ("\ud800", "s"), np.array([["w"], ["s"]]), {"w": 1, "s": 2},
    (["w"], "s"), 5,
    ("w", 1.5), np.array(["w", "s"], dtype=">U3"),
)  # fmt: skip
ODD_ABOUT = (
    None, {}, 5, "x", [("a", "b")], {"a": 1}, {1: "a"}, {"a": None}, {"a": "x" * 30_000}, {"a\n": "b"},
    {"a": "\x1b"},
    {"a": "\ud800"}, {"a": "b\0c"}, {"": ""},
)  # fmt: skip
ODD_PARTS = (
    lambda num: np.array(["train", "test"] * num)[:num],
    lambda num: np.array(["train"] * num),
    lambda num: np.array(["train", "Test"] * num)[:num],
    lambda num: ["train", "test"] * num,
    lambda num: np.ma.masked_array(np.array(["train", "test"] * num)[:num], mask=[True] * num),
)


def _matrix(array):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asmatrix(array.reshape(len(array), -1))


def _with(array, cell):
    made = array.astype(object)
    made.flat[0] = cell
    return made


def odd_windows(rng):
    """(windows, whether all changes are harmless) of one seed."""
    windows, is_harmless = honest(rng), rng.random() < 0.4
    for _ in range(rng.integers(1, 4) if is_harmless else rng.integers(1, 3)):
        key = one_of(rng, ("x", "y", "user", "device", "session"))
        if is_harmless:
            change = {key: one_of(rng, HARMLESS)(np.asarray(getattr(windows, key)))}
        else:
            change = _odd_change(rng, windows, key)
        windows = replace(windows, **change)
    return windows, is_harmless


def _odd_change(rng, windows, key):
    kind = rng.integers(6)
    if kind == 0:
        return {one_of(rng, ("classes", "channels")): one_of(rng, ODD_NAMES)}
    if kind == 1:
        return {"about": one_of(rng, ODD_ABOUT)}
    if kind == 2:
        return {"part": one_of(rng, ODD_PARTS)(len(honest(rng)))}
    array = getattr(windows, key)
    try:
        return {key: one_of(rng, ODD_ARRAYS)(array)}
    except Exception:  # NumPy or torch does not make it
        return {key: None}
