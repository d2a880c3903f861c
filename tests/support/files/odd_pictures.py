"""Arguments of `from_images` and `from_partitions` as nobody expects them, by a seed.

And what plain Python makes of those that mean something, by the docs.
"""

import itertools
import math
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import torch
from odd_archives import one_of
from PIL import Image

CHANNELS = {1: ("brightness",), 3: ("red", "green", "blue")}


class Rude:
    """A picture that becomes no array, and cannot be shown."""

    def __array__(self, *_, **__):
        raise ZeroDivisionError

    def __repr__(self):
        raise RuntimeError


def honest(rng):
    """Arguments of six to fourteen pictures of three users and three classes."""
    num, height, width = int(rng.integers(6, 15)), int(rng.integers(4, 7)), int(rng.integers(4, 7))
    form = one_of(rng, ((), (1,), (3,)))
    images = rng.integers(0, 256, size=(num, height, width, *form)).astype(np.uint8)
    if form and rng.random() < 0.5:
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    given = {"images": images, "labels": np.arange(num) % 3}
    if rng.random() < 0.3:
        given["classes"] = ["p", "q", "r"]
    if num < 10 or rng.random() < 0.7:
        given["users"] = one_of(rng, (1, 2, 3, [f"u{at % 3}" for at in range(num)]))
    if "users" in given and rng.random() < 0.4:
        given["per_user"] = int(rng.integers(1, 3))
    return given


HARMLESS = (
    lambda given: given | {"images": list(given["images"])},
    lambda given: given | {"images": tuple(given["images"])},
    lambda given: given | {"images": torch.from_numpy(given["images"])},
    lambda given: given | {"images": [torch.from_numpy(one) for one in given["images"]]},
    lambda given: given | {"images": np.asfortranarray(given["images"])},
    lambda given: given | {"images": given["images"].astype(np.int64)},
    lambda given: given | {"images": given["images"] / 256},
    lambda given: given | {"images": given["images"].astype(">f8")},
    lambda given: given | {"images": given["images"] > 100},
    lambda given: given | {"images": np.repeat(given["images"], 2, axis=0)[::2]},
    lambda given: given | {"labels": given["labels"].tolist()},
    lambda given: given | {"labels": torch.from_numpy(given["labels"])},
    lambda given: given | {"labels": given["labels"].astype(np.uint8)},
    lambda given: given | {"labels": given["labels"].astype(">i4")},
    lambda given: given | {"classes": np.array(["a", "b", "c", "d"])},
    lambda given: given | {"classes": "abc"},
    lambda given: given | {"classes": (1, 2, 3)},
    lambda given: given | {"classes": range(5)},
    lambda given: given | {"users": np.int16(2), "per_user": None},
    lambda given: given | {"users": np.arange(len(given["images"])) % 2},
    lambda given: given | {"users": np.array([f"n{at % 2}" for at in range(len(given["images"]))], object)},
    lambda given: given | {"users": [at % 2 for at in range(len(given["images"]))]},
    lambda given: given | {"users": [one_in(at % 2) for at in range(len(given["images"]))]},
    lambda given: given | {"about": {"source": "made up"}},
    lambda given: given | {"about": None},
)  # fmt: skip


def one_in(at):
    """1, whole or not: the same user; or another one."""
    return (1, 1.0)[at % 2]


def _cells(cell):
    """A change of one entry."""
    return lambda value: _changed(value, cell)


def _changed(value, cell):
    made = list(value) if not isinstance(value, int) else [value] * 3
    made[int(len(made) / 2)] = cell
    return made


def _given(value):
    """A change into a value."""
    return lambda _: value


def _array(value):
    return np.asarray(value)


ODD = {
    "images": (
        lambda of: None,
        lambda of: 5,
        lambda of: "x",
        lambda of: b"xxx",
        lambda of: {},
        lambda of: {"a": of},
        lambda of: [],
        lambda of: (),
        lambda of: of[0],
        lambda of: of[:0],
        lambda of: of[..., :0],
        lambda of: of[..., None, None],
        lambda of: of.astype(object),
        lambda of: of.astype(complex),
        lambda of: of.astype(str),
        lambda of: of.astype("S"),
        lambda of: of.astype("m8[s]"),
        lambda of: np.where(of > 250, np.nan, of),
        lambda of: of * 1e300,
        lambda of: np.full(of.shape, np.inf),
        lambda of: np.ma.masked_array(of, mask=of > 100),
        lambda of: [np.ma.masked_array(one) for one in of],
        lambda of: [*list(of[:-1]), of[-1][:-1]],
        lambda of: [*list(of[:-1]), None],
        lambda of: [*list(of[:-1]), Rude()],
        lambda of: [*list(of[:-1]), "x"],
        lambda of: iter(of),
        lambda of: (one for one in of),
        lambda of: Rude(),
        lambda of: of[:-1],
        lambda of: [of, of],
        lambda of: [[[1, 2], [3]], [[1]]],
        lambda of: np.zeros((len(of), 4, 4, 4)),
        lambda of: object,
        lambda of: np.zeros((len(of), 3, 5, 3)),
        lambda of: np.zeros((len(of), 2, 4, 4)),
        lambda of: torch.zeros(len(of), 4, 4, requires_grad=True),
        lambda of: torch.zeros(len(of), 4, 4).bfloat16(),
        lambda of: torch.zeros(len(of), 4, 4, device="meta"),
        lambda of: torch.zeros(len(of), 4, 4).to_sparse(),
        lambda of: [Image.new("P", (4, 4))] * len(of),
        lambda of: [Image.new("RGBA", (4, 4))] * len(of),
        lambda of: [Image.new("L", (4, 4))] * (len(of) - 1) + [Image.new("RGB", (4, 4))],
        lambda of: [Image.new("L", (4, 5))] * len(of),
        lambda of: np.zeros(len(of), dtype=[("a", "f4")]),
        lambda of: np.broadcast_to(np.uint8(3), (len(of), 4, 4)),
        lambda of: np.zeros((len(of), 4, 4), np.longdouble),
    ),
    "labels": (
        lambda of: None,
        lambda of: 5,
        lambda of: "x" * len(of),
        lambda of: of[:-1],
        lambda of: of[:0],
        lambda of: of[:, None],
        lambda of: of - 1,
        lambda of: of.astype(float),
        lambda of: of.astype(bool),
        lambda of: of.astype(object),
        lambda of: of.astype(str),
        lambda of: of * 0,
        lambda of: of * 10**12,
        lambda of: of * 2**61,
        lambda of: of.astype(np.uint64) * 2**62,
        lambda of: [10**30, *of[1:].tolist()],
        lambda of: np.ma.masked_array(of, mask=of > 1),
        lambda of: iter(of),
        lambda of: dict(enumerate(of)),
        lambda of: set(of.tolist()),
        lambda of: [[1], [1, 2]] * (len(of) // 2),
        lambda of: Rude(),
        _cells(None),
        _cells("a"),
        _cells(1.5),
        _cells(math.nan),
        _cells(True),
        _cells([1]),
        _cells(2**63),
        _cells(-(2**63)),
        lambda of: of.astype("M8[s]"),
        lambda of: of * 70_000,
        lambda of: torch.zeros(len(of), device="meta"),
    ),
    "users": (
        lambda of: None,
        lambda of: 0,
        lambda of: -1,
        lambda of: True,
        lambda of: 2.0,
        lambda of: math.nan,
        lambda of: 10**30,
        lambda of: 10**600,
        lambda of: "abc",
        lambda of: b"abc",
        lambda of: {},
        lambda of: iter("abc"),
        lambda of: _array(of).astype("S"),
        lambda of: np.zeros((3, 3)),
        lambda of: np.array(2),
        lambda of: Rude(),
        lambda of: set("abc"),
        _cells(None),
        _cells(math.nan),
        _cells(math.inf),
        _cells(b"x"),
        _cells("a\0"),
        _cells("a\0b"),
        _cells("\x1b[2J"),
        _cells("\ud800"),
        _cells(""),
        _cells(True),
        _cells(1.5),
        _cells(10**30),
        _cells([1]),
        _cells(Rude()),
        _cells(1j),
        _cells(np.datetime64("2020-01-01")),
        _cells("x" * 100_000),
        lambda of: np.ma.masked_array(np.arange(6)),
        lambda of: np.full(6, np.datetime64("2020-01-01")),
    ),
    "per_user": tuple(
        _given(value)
        for value in (
            0,
            -1,
            1.5,
            math.nan,
            True,
            "x",
            "2",
            10**30,
            [1],
            np.int8(2),
            np.float64(2),
            Rude(),
            b"1",
            10**600,
        )
    ),
    "classes": tuple(
        _given(value)
        for value in (
            (),
            [],
            "",
            "ab",
            ("a",),
            ("a", "a", "b"),
            {"a", "b", "c"},
            {"a": 0, "b": 1, "c": 2},
            5,
            b"abc",
            iter("abc"),
            itertools.count(),
            [None, "a", "b"],
            [1.5, "a", "b"],
            [b"a", b"b", b"c"],
            ["a\0", "a", "b"],
            ["a\n", "b", "c"],
            ["\ud800", "b", "c"],
            np.array([["a", "b", "c"]]),
            np.array("abc"),
            Rude(),
            ["x" * 100_000, "b", "c"],
            object,
            [Rude()] * 3,
            [True, 1, 2],
            np.array(["a", "b", "c"], dtype=object),
            bytearray(b"abc"),
        )
    ),
    "about": tuple(
        _given(value)
        for value in (
            5,
            "x",
            [("a", "b")],
            {"a": 1},
            {1: "a"},
            {"a": "x" * 30_000},
            {"a": "\x1b"},
            {"a": "\ud800"},
            [],
            0,
        )
    ),
}


def odd_arguments(rng):
    """(arguments, whether they mean something by the docs) of one seed."""
    given = honest(rng)
    if rng.random() < 0.4:
        for _ in range(rng.integers(1, 3)):
            with suppress(
                AttributeError, TypeError, ValueError
            ):  # a change that the one before does not admit
                given = one_of(rng, HARMLESS)(given)
        return given, True
    key = one_of(rng, list(ODD))
    before = given.get(key, {"users": 3}.get(key))
    return given | {key: one_of(rng, ODD[key])(before)}, False


def plain_pictures(given):
    """((picture (C, H, W) as lists, label, user) of each, classes) of what is taken, in plain Python."""
    pictures = [np.asarray(one).tolist() for one in given["images"]]
    pictures = [[one] if np.ndim(one) == 2 else one for one in pictures]
    if len(pictures[0]) not in CHANNELS:  # channels last
        pictures = [
            [[[px[c] for px in row] for row in one] for c in range(len(one[0][0]))] for one in pictures
        ]
    labels = [int(label) for label in given["labels"]]
    users, most, per_user = given.get("users", 10), len(pictures), given.get("per_user")
    if isinstance(users, int | np.integer):
        users, digits = int(users), len(str(int(users) - 1))
        if per_user is None:
            ends = [at * most // users for at in range(users + 1)]
            kept = [(at, user) for user in range(users) for at in range(ends[user], ends[user + 1])]
        else:
            kept = [(user * int(per_user) + at, user) for user in range(users) for at in range(int(per_user))]
        kept = [(at, f"user-{user:0{digits}d}") for at, user in kept]
    else:
        names, count, kept = [name_of(user) for user in users], {}, []
        for at, name in enumerate(names):
            count[name] = count.get(name, 0) + 1
            if per_user is None or count[name] <= int(per_user):
                kept.append((at, name))
    classes = given.get("classes")
    classes = range(max(labels) + 1) if classes is None else classes
    return [(pictures[at], labels[at], user) for at, user in kept], [str(name) for name in classes]


def name_of(user):
    """A user's name as text; a whole number has no point."""
    user = user.item() if isinstance(user, np.generic) else user
    return str(int(user)) if isinstance(user, float) and user == int(user) else str(user)


# --- partitions ------------------------------------------------------------------------------------------


class Part:
    """A partition in the form of Hugging Face's data sets: columns by name, features."""

    def __init__(self, columns, names=None, length=None):
        self.columns, self.length = columns, length
        self.column_names = list(columns)
        self.features = {name: SimpleNamespace() for name in columns}
        if names is not None and "label" in columns:
            self.features["label"] = SimpleNamespace(names=names)

    def __getitem__(self, name):
        return self.columns[name]

    def __len__(self):
        return len(next(iter(self.columns.values()))) if self.length is None else self.length


def _failing(part):
    class Failing(Part):
        def __getitem__(self, name):
            raise OSError("cannot identify\nimage file")

    return Failing(part.columns)


ODD_PARTS = (
    lambda part: None,
    lambda part: {},
    lambda part: part.columns,
    lambda part: [],
    lambda part: 5,
    lambda part: Rude(),
    lambda part: Part({}),
    lambda part: Part({"image": part.columns["image"]}),
    lambda part: Part({"image": part.columns["image"], "scan": part.columns["label"]}),
    _failing,
    lambda part: Part(part.columns, ["q", "p", "r"]),
    lambda part: Part(part.columns, 5),
    lambda part: Part(part.columns, length=99),
    lambda part: Part(part.columns | {"label": []}),
    lambda part: Part(part.columns | {"label": None}),
    lambda part: Part(part.columns | {"image": None}),
    lambda part: Part(part.columns | {"image": [Image.new("P", (4, 4)) for _ in part.columns["label"]]}),
    lambda part: Part(part.columns | {"label": [[1]] * len(part)}),
    lambda part: Part(part.columns | {"label": [1.5] * len(part)}),
    lambda part: Part(part.columns | {"label": [None] * len(part)}),
    lambda part: Part(part.columns | {"label": [7] * len(part)}),
    lambda part: Part(part.columns | {"image": ["no"] * len(part)}),
    lambda part: SimpleNamespace(column_names=["image", "label"], features=None),
    lambda part: SimpleNamespace(column_names=5, features={}),
)


def honest_partitions(rng):
    """Two to four partitions of grey pictures; the names of classes are those of all."""
    names = one_of(rng, (None, ["p", "q", "r"]))
    parts, column = [], one_of(rng, ("image", "img"))
    for _ in range(rng.integers(2, 5)):
        num = int(rng.integers(3, 6))
        pictures = [Image.fromarray(one) for one in rng.integers(0, 256, (num, 4, 5)).astype(np.uint8)]
        parts.append(Part({column: pictures, "label": [at % 3 for at in range(num)]}, names))
    return parts, names


def odd_partitions(rng):
    """(positional and named arguments, (partitions, names) as they mean by the docs or None) of one seed."""
    parts, names = honest_partitions(rng)
    for part in parts:
        part.columns = {"image" if name == "img" else name: cells for name, cells in part.columns.items()}
        part.column_names = list(part.columns)
        part.features = {"image": SimpleNamespace(), "label": part.features["label"]}
    how = rng.integers(5)
    if how == 0:
        return (one_of(rng, (list, tuple))(parts),), {"image": one_of(rng, ("", "image"))}, (parts, names)
    if how == 1:
        odd = one_of(
            rng, (None, [], (), {}, 5, "x", parts[0], iter(parts), np.array([]), Rude(), {"a": parts})
        )
        return (odd,), {}, None
    if how == 2:
        odd = one_of(
            rng, (None, 5, "no", "label", b"image", Rude(), ["image"], "\x1b[2J", 0, np.array(["image", "x"]))
        )
        return (parts,), {one_of(rng, ("image", "label")): odd}, None
    at = int(rng.integers(len(parts)))
    parts[at] = one_of(rng, ODD_PARTS)(parts[at])
    return (parts,), {}, None
