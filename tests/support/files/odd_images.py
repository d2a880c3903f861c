"""Files of pictures that nobody would send in good faith, each by a seed: IDX, batches of CIFAR-10, pickles.

Headers that claim 10⁵ × 10⁵ pixels or less than nothing, other types and axes, labels out of range, files
that are text, PNG or of another set, bytes changed and cut; pickles of every order, also those that name
nothing and fill the memory all the same.
"""

import gzip
import pickle
import struct

import numpy as np
from odd_archives import one_of
from odd_tables import damaged
from published import python_2_batch

LENGTHS = (0, 1, 2, 3, 9, 10, 28, 255, 10**5, 2**15, 2**31 - 1, 2**31, 2**32 - 1)
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">IIBBBBB", 10**5, 10**5, 16, 6, 0, 0, 1)
OTHERS = (
    b"",
    b"P6 100000 100000 255\n",
    PNG,
    b"GIF89a" + bytes(20),
    b"a picture, they said\n",
    b"\xff\xd8\xff\xe1Exif",
)


def odd_idx(rng, axes):
    """An IDX file of as many axes, mostly."""
    if rng.random() < 0.1:
        return one_of(rng, OTHERS)
    shape = tuple(int(length) for length in rng.integers(1, 12, axes))
    values = rng.integers(0, 10, shape).astype(np.uint8).tobytes()
    claimed, kind = list(shape), 8
    how = rng.integers(6)
    if how == 0:
        claimed[rng.integers(axes)] = int(one_of(rng, LENGTHS))
    elif how == 1:
        kind = int(one_of(rng, (0, 9, 11, 12, 13, 14, 255)))
    elif how == 2:
        values += bytes(int(one_of(rng, (1, 1000, 10**6))))
    made = bytes([0, 0, kind, axes]) + struct.pack(f">{axes}I", *claimed) + values
    made = damaged(rng, made, 0.3)
    return damaged(rng, gzip.compress(made), 0.3) if rng.integers(2) else made


def odd_mnist(rng, folder):
    """The two files of MNIST."""
    for name, axes in (("images-idx3", 3), ("labels-idx1", 1)):
        made = odd_idx(rng, axes)
        (folder / f"train-{name}-ubyte{one_of(rng, ('', '.gz'))}").write_bytes(made)
    if rng.random() < 0.5:  # as many labels as pictures
        count, sides = int(rng.integers(1, 6)), rng.integers(1, 9, 2)
        images = (
            bytes([0, 0, 8, 3]) + struct.pack(">3I", count, *sides) + rng.bytes(int(count * sides.prod()))
        )
        labels = bytes([0, 0, 8, 1]) + struct.pack(">I", count) + bytes(rng.integers(0, 12, count).tolist())
        for name, made in (("images-idx3", images), ("labels-idx1", labels)):
            for path in folder.glob(f"train-{name}*"):
                path.unlink()
            (folder / f"train-{name}-ubyte").write_bytes(damaged(rng, made, 0.2))


def odd_cifar10(rng, folder):
    """The five batches of CIFAR-10, of which one is odd: binary, or pickled."""
    labels = rng.integers(0, 11, 2)
    honest = b"".join(bytes([number % 10]) + bytes(3072) for number in range(2))
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(honest)
    if rng.integers(2):
        made = b"".join(bytes([label]) + rng.bytes(3072) for label in labels)
        made = one_of(rng, (made, made, damaged(rng, made, 1), *OTHERS))
        (folder / "data_batch_1.bin").write_bytes(made)
    else:
        (folder / "data_batch_1.bin").unlink()
        (folder / "data_batch_1").write_bytes(odd_pickle(rng, labels.tolist()))


def odd_pickle(rng, labels):
    """A pickled batch: right but for its labels, changed, or any orders."""
    how = rng.integers(5)
    if how == 0:
        return python_2_batch(np.zeros((2, 3072), np.uint8), labels)
    if how == 1:
        return damaged(rng, python_2_batch(np.zeros((2, 3072), np.uint8), labels), 1)
    if how == 2:
        pixels = np.zeros(
            one_of(rng, ((2, 3072), (2, 3), (3072,), (0, 3072))), one_of(rng, ("u1", "f4", "i8", "U1"))
        )
        odd = one_of(rng, (labels, tuple(labels), "01", [0.0, 1.0], [True, False], [[0], [1]], None, {}))
        entries = {b"data": pixels, b"labels": odd}
        return damaged(
            rng, pickle.dumps(one_of(rng, (entries, [entries], pixels)), int(rng.integers(6))), 0.3
        )
    if how == 3:
        return BOMBS[one_of(rng, tuple(BOMBS))]
    return b"\x80\x04" + b"".join(any_order(rng) for _ in range(rng.integers(1, 60))) + b"."


def any_order(rng):
    """An order of a pickle with arguments of its kind, of any values."""
    name = one_of(rng, ORDERS)
    code = getattr(pickle, name)
    tail = {
        "BININT1": 1, "BINGET": 1, "BINPUT": 1, "BININT2": 2, "BININT": 4, "LONG_BINGET": 4, "LONG_BINPUT": 4,
        "FRAME": 8, "BINFLOAT": 8, "EXT1": 1, "EXT2": 2, "EXT4": 4,
    }.get(name)  # fmt: skip
    if tail:
        return code + (
            bytes([int(rng.integers(4))]) + bytes(tail - 1) if rng.random() < 0.7 else rng.bytes(tail)
        )
    if name in ("SHORT_BINBYTES", "SHORT_BINUNICODE", "SHORT_BINSTRING", "LONG1"):
        size = int(rng.integers(4))
        return code + bytes([size]) + b"data"[:size]
    if name in ("BINBYTES8", "BINUNICODE8", "BYTEARRAY8"):
        return code + struct.pack("<Q", int(one_of(rng, (1, 4, 2**20, 2**33, 2**62)))) + b"data"
    if name in ("GLOBAL", "INST"):
        return code + one_of(
            rng, (b"numpy\nndarray\n", b"numpy\ndtype\n", b"_codecs\nencode\n", b"os\nsystem\n")
        )
    if name in ("INT", "LONG", "FLOAT", "STRING", "UNICODE", "GET", "PUT", "PERSID"):
        return code + one_of(rng, (b"0\n", b"1\n", b"'a'\n", b"9" * 5000 + b"\n", b"-1\n", b"1e999\n"))
    return code


ORDERS = sorted(
    name for name, code in vars(pickle).items()
    if name.isupper() and isinstance(code, bytes) and len(code) == 1 and name not in ("STOP", "PROTO")
)  # fmt: skip


def _text(content):
    return b"\x8d" + struct.pack("<Q", len(content)) + content


BOMBS = {
    "a memo of 2^31 places": b"\x80\x02}r\xf0\xff\xff\x7f.",
    "a key that takes years to hash": b"\x80\x02})q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"K\x01s.",
    "a tuple that takes years to compare": b"\x80\x02]" + b")q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"a.",
    "text encoded thousands of times": b"\x80\x02]c_codecs\nencode\nq\x01"
    + _text(b"a" * 10**6) + b"q\x02\x85q\x030(" + b"h\x01h\x03R" * 5000 + b"e.",
    "bytes of 8 GB": b"\x80\x04\x8e" + struct.pack("<Q", 2**33) + b"x.",
    "an array of bytes of 8 GB": b"\x80\x05\x96" + struct.pack("<Q", 2**33) + b"x.",
    "a frame of 8 GB": b"\x80\x04\x95" + struct.pack("<Q", 2**33) + b"}.",
    "lists in each other": b"\x80\x02" + b"(" * 100_000 + b"l" * 100_000 + b".",
    "a number of many digits": b"I" + b"9" * 10**6 + b"\n.",
    "a long number of many bytes": b"\x80\x02\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6 + b".",
}  # fmt: skip
