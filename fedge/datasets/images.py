"""Pictures as windows, with made-up users, because image files have none.

Data of other libraries (torchvision, flwr-datasets, Keras) can be turned into windows here, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fedge.config.registers.option import shown
from fedge.datasets.columns import name_texts
from hhar.errors import HharError
from hhar.windows.window_file import Windows, as_format, check_windows

MOST_USERS = 100_000
MOST_CLASSES = 100_000  # without names
_MODES = ("1", "L", "RGB", "F", "I", "I;16", "I;16B", "I;16L", "I;16N")  # of Pillow: brightness, or colours
_OTHER_MODES = {"P": " (a palette)", "RGBA": " (with transparency)", "LA": " (with transparency)"}
_LISTS = "make lists of it: images, labels = zip(*data)"
_CHANNELS = {1: ("brightness",), 3: ("red", "green", "blue")}


def from_images(
    images: Any,
    labels: Any,
    *,
    users: int | Sequence[Any] | NDArray[Any] = 10,
    per_user: int | None = None,
    classes: Sequence[str] | None = None,
    about: Mapping[str, str] | None = None,
) -> Windows:
    """Pictures as windows for `fedge.simulate`; `.save(path)` writes them as a window file.

    Args:
        images: (N, H, W), (N, H, W, C) or (N, C, H, W), 1 or 3 channels, first where both fit; uint8 is
            brightness 0..255, other numbers become float32. Arrays, tensors, or a list of pictures of one
            size.
        labels: (N) whole numbers from 0.
        users: their number, with equal blocks of successive pictures; or (N) names, one per picture.
        per_user: pictures of each user, the first of its block; by default all.
        classes: names in label order; by default the numbers.
        about: the file's description of itself: source, licence, citation.

    Raises:
        HharError: shapes, types or numbers do not fit.
    """
    x = _pictures(images)
    y = _labels(labels, len(x), has_classes=classes is not None)
    indices, names = _assign_users(users, per_user, len(x))
    windows = Windows(
        x=np.ascontiguousarray(x[indices]),
        y=y[indices],
        user=names,
        device=None,
        session=None,
        classes=tuple(map(str, range(int(y.max(initial=0)) + 1)))
        if classes is None
        else _class_names(classes),
        channels=_CHANNELS[x.shape[1]],
        about={} if about is None else dict(about) if isinstance(about, Mapping) else about,
    )
    windows = as_format(windows)
    check_windows(windows, "images")
    return windows


def from_partitions(partitions: Sequence[Any], image: str = "", label: str = "") -> Windows:
    """The partitions of a data set by `flwr_datasets` as windows, with one user per partition.

    Args:
        partitions: Hugging Face data sets, as `[fds.load_partition(k) for k in range(40)]`.
        image: column of the pictures; by default "image" or "img".
        label: column of the labels; by default "label" or "labels".

    Raises:
        HharError: there is no such column, or the pictures differ in size.
    """
    if not isinstance(partitions, (list, tuple)) or not partitions:
        raise HharError(
            f"partitions: must be a list of at least one data set, are {shown(partitions)}; give "
            "[fds.load_partition(0), …]"
        )
    layouts = {_columns(part, number, image, label) for number, part in enumerate(partitions)}
    if len(layouts) > 1:
        raise HharError(
            "partitions: must have the same columns and names of classes, have others; load all from one "
            "data set"
        )
    image, label, names = layouts.pop()
    parts = [_read(part, number, image, label) for number, part in enumerate(partitions)]
    width = len(str(len(partitions) - 1))
    users = [f"user-{index:0{width}d}" for index, (_, labels) in enumerate(parts) for _ in labels]
    pictures = [picture for part_pictures, _ in parts for picture in part_pictures]
    return from_images(pictures, np.concatenate([labels for _, labels in parts]), users=users, classes=names)


def _columns(part: Any, number: int, image: str, label: str) -> tuple[str, str, tuple[str, ...] | None]:
    """Columns of a partition's pictures and labels, and the names of classes if it has some."""
    try:
        present = list(part.column_names)
        image = _choose_column(present, image, ("image", "img"), "image")
        label = _choose_column(present, label, ("label", "labels"), "label")
        names = getattr(part.features.get(label), "names", None)
    except (AttributeError, TypeError) as error:
        raise HharError(
            f"partitions: must be data sets with columns and features, number {number} is "
            f"{shown(type(part).__name__)}; give [fds.load_partition(0), …]"
        ) from error
    return image, label, None if names is None else _class_names(names)


def _read(part: Any, number: int, image: str, label: str) -> tuple[list[Any], NDArray[Any]]:
    """Pictures and labels of a partition; HharError for unreadable, unequal or empty columns."""
    try:
        pictures, labels = list(part[image]), _as_array(part[label], "labels")
    except HharError:
        raise
    except Exception as error:  # a library's own, from an undecodable file, for example
        raise HharError(
            f"partitions: number {number} must be readable, but {type(error).__name__}: "
            f"{shown(str(error))}; load it again"
        ) from error
    if labels.shape != (len(pictures),):
        raise HharError(
            f"partitions: number {number} must have a label for each of its {len(pictures)} pictures, has "
            f"labels of shape {labels.shape}; name another column: label=…"
        )
    if not pictures:
        raise HharError(
            f"partitions: must hold pictures, number {number} holds none; leave it out, or use another "
            "partitioner"
        )
    return pictures, labels


def _choose_column(present: Sequence[str], requested: str, defaults: Sequence[str], argument: str) -> str:
    """The given column, or the first usual one."""
    if not isinstance(requested, str):
        raise HharError(f"{argument}: must be the name of a column, is {shown(requested)}; give a text")
    for name in (requested,) if requested else defaults:
        if name in present:
            return name
    expected = shown(requested) if requested else " or ".join(defaults)
    raise HharError(
        f"partitions: must have a column {expected}, have {', '.join(map(str, present))}; name it: "
        f"{argument}=…"
    )


def _as_array(value: Any, name: str) -> NDArray[Any]:
    """A value as a plain array; HharError for a masked one, and if NumPy makes no array of it."""
    items = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(item, np.ma.MaskedArray) for item in items):
        raise HharError(f"{name}: must not be masked, but are; leave out what is masked, or fill it")
    for item in items:
        mode = getattr(item, "mode", None)  # Pillow's
        if isinstance(mode, str) and hasattr(item, "getbands") and mode not in _MODES:
            raise HharError(
                f"{name}: must be grey or RGB, but a picture is {mode}{_OTHER_MODES.get(mode, '')}; use "
                'picture.convert("RGB")'
            )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            array = np.asarray(value)
    except Exception as error:  # lists of several lengths; tensors elsewhere; arrays of a user's own class
        raise HharError(
            f"{name}: must be an array, but {type(value).__name__} does not become one "
            f"({type(error).__name__}); {_way_to_array(value)}"
        ) from error
    if array.shape == () and hasattr(value, "__iter__") and not isinstance(value, (str, bytes)):
        raise HharError(f"{name}: must be an array, but are {type(value).__name__}; {_LISTS}")
    return array


def _way_to_array(value: Any) -> str:
    """Next step for a value of which NumPy makes no array."""
    if hasattr(value, "cpu"):  # a tensor elsewhere, or of a type of PyTorch's own
        return "convert it: tensor.float().cpu()"
    is_data_set = hasattr(value, "__getitem__") and not isinstance(value, (list, tuple))
    return _LISTS if is_data_set else "convert it: numpy.asarray(…)"


def _labels(labels: Any, count: int, *, has_classes: bool) -> NDArray[np.int64]:
    """Labels int64 (N,)."""
    y = _as_array(labels, "labels")
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) != count:
        raise HharError(
            f"labels: must be {count} whole numbers, one a picture, are {y.dtype} {y.shape}; give numbers "
            "from 0, and their names as classes"
        )
    if not has_classes and y.size and y.max() >= MOST_CLASSES:
        raise HharError(
            f"labels: must be below {MOST_CLASSES:,} without names of classes, go up to {y.max()}; number "
            "them from 0: numpy.unique(labels, return_inverse=True)"
        )
    if y.size and y.max() > np.iinfo(np.int64).max:  # would turn negative
        raise HharError(f"labels: must be whole numbers of 64 bits, go up to {y.max()}; number from 0")
    return y.astype(np.int64)


def _class_names(classes: Any) -> tuple[str, ...]:
    """Names of classes, which have an order."""
    is_listed = isinstance(classes, Sequence) and not isinstance(classes, (bytes, bytearray))
    is_listed |= isinstance(classes, np.ndarray) and classes.ndim == 1
    names = list(classes) if is_listed else []
    if not names or not all(isinstance(name, (str, Integral)) for name in names):
        raise HharError(
            f'classes: must be names in label order, are {shown(classes)}; give classes=["…", "…"]'
        )
    return tuple(map(str, names))


def _pictures(images: Any) -> NDArray[Any]:
    """(N, C, H, W), of any type of number."""
    if isinstance(images, (list, tuple)):
        images = [_as_array(picture, "images") for picture in images]
        sizes = {picture.shape for picture in images}
        if len(sizes) > 1:
            raise HharError(
                f"images: must be of one size, are of {len(sizes)}, as {sorted(sizes)[:2]}; resize them"
            )
        kinds = sorted({str(picture.dtype) for picture in images})
        if len(kinds) > 1:  # brightness up to 1, 255 and 65,535
            raise HharError(
                f"images: must be of one type of number, are {' and '.join(kinds)}, whose scales may differ; "
                "convert them to one scale and type"
            )
    x = _as_array(images, "images")
    if x.dtype.kind not in "fiub" or x.ndim not in (3, 4) or 0 in x.shape:
        raise HharError(
            f"images: must be numbers of shape (N, H, W), (N, H, W, C) or (N, C, H, W), are "
            f"{x.dtype} {x.shape}; give an array of pictures of one size"
        )
    x = x[:, None] if x.ndim == 3 else x
    if x.shape[1] not in _CHANNELS and x.shape[3] in _CHANNELS:
        x = x.transpose(0, 3, 1, 2)
    if x.shape[1] not in _CHANNELS:
        raise HharError(
            f"images: must have 1 or 3 channels, first or last, are {x.shape}; leave transparency out"
        )
    return x


def _assign_users(
    users: int | Sequence[Any] | NDArray[Any], per_user: int | None, count: int
) -> tuple[NDArray[np.int64], NDArray[np.str_]]:
    """Indices of the kept pictures, and the user of each."""
    if per_user is not None and not (_is_whole_number(per_user) and per_user >= 1):
        raise HharError(
            f"per_user: must be at least 1, a whole number, is {shown(per_user)}; leave it out for all"
        )
    if _is_whole_number(users):
        limit = min(MOST_USERS, count)
        if not 1 <= users <= limit:
            raise HharError(
                f"users: must be 1 to {limit} for {count} pictures, is {shown(users)}; take for example 10"
            )
        size = count // int(users) if per_user is None else per_user
        if size * int(users) > count:
            raise HharError(
                f"users: must need at most the {count} pictures that there are, need {shown(users)} × "
                f"{shown(size)}; lower users or per_user"
            )
        width = len(str(int(users) - 1))
        names = [f"user-{number:0{width}d}" for number in range(int(users))]
        start = (
            np.arange(int(users)) * count // int(users) if per_user is None else np.arange(int(users)) * size
        )
        end = np.append(start[1:], count) if per_user is None else start + size
        indices = np.concatenate([np.arange(a, b) for a, b in zip(start, end, strict=True)])
        return indices, np.repeat(np.array(names), end - start)
    user_names = _users(users)
    if user_names.shape != (count,):
        raise HharError(
            f"users: must be one name a picture, {count}, are {shown(users)} of shape "
            f"{user_names.shape}; or a number"
        )
    if per_user is None:
        return np.arange(count), user_names
    indices = np.sort(
        np.concatenate([np.flatnonzero(user_names == name)[:per_user] for name in np.unique(user_names)])
    )
    return indices, user_names[indices]


def _is_whole_number(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number, and no truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _users(users: Any) -> NDArray[np.str_]:
    """Names of users as text; HharError for other than text, finite numbers or dates."""
    values = _as_array(users, "users")
    if isinstance(users, (list, tuple)) and values.ndim == 1:
        values = np.empty(len(users), dtype=object)  # NumPy makes one type of text and numbers
        values[:] = users
    if values.ndim != 1 or values.dtype.kind == "U":
        return values.astype(np.str_)
    texts = name_texts(values, "users")
    if any("\0" in name for name in texts):  # which NumPy leaves out at the end
        raise HharError("users: must be printable names, but hold the character '\\x00'; rename them")
    return np.array(texts, dtype=np.str_)
