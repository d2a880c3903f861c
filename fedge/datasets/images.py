"""Pictures as windows: users are made up, because image files have none.

Results of libraries with such data (torchvision, flwr-datasets, Keras) become windows here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hhar.errors import HharError
from hhar.windows.window_file import Windows, check_windows

MOST_USERS = 100_000
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
        images: (N, H, W), (N, H, W, C) or (N, C, H, W), 1 or 3 channels; uint8 is brightness 0..255, other
            numbers become float32. Arrays, tensors, or a list of pictures of one size.
        labels: (N) whole numbers from 0.
        users: a number of them, with equal blocks of neighbours in the order given; or (N) names, one a
            picture.
        per_user: pictures of each user, the first of its block; by default all.
        classes: names in label order; by default the numbers.
        about: the file's description of itself: source, licence, citation.

    Raises:
        HharError: shapes, types or numbers do not fit.
    """
    x = _pictures(images)
    y = np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) != len(x):
        raise HharError(
            f"labels: must be {len(x)} whole numbers, one a picture, are {y.dtype} {y.shape}; give numbers "
            "from 0, and their names as classes"
        )
    kept, names = _dealt(users, per_user, len(x))
    named = tuple(classes) if classes is not None else tuple(map(str, range(int(y.max(initial=0)) + 1)))
    windows = Windows(
        x=np.ascontiguousarray(x[kept]),
        y=y[kept].astype(np.int64),
        user=names,
        device=None,
        session=None,
        classes=tuple(map(str, named)),
        channels=_CHANNELS[x.shape[1]],
        about=dict(about or {}),
    )
    check_windows(windows, "images")
    return windows


def from_partitions(partitions: Sequence[Any], image: str = "", label: str = "") -> Windows:
    """The partitions of a data set, as `flwr_datasets` makes them, as windows: a user for each.

    Args:
        partitions: Hugging Face data sets, as `[fds.load_partition(k) for k in range(40)]`.
        image: column of the pictures; by default "image" or "img".
        label: column of the labels; by default "label" or "labels".

    Raises:
        HharError: there is no such column, or the pictures differ in size.
    """
    if not partitions:
        raise HharError(
            "partitions: must be at least one data set, are none; load one with load_partition(0)"
        )
    known = list(partitions[0].column_names)
    image = image or _first(known, ("image", "img"), "image")
    label = label or _first(known, ("label", "labels"), "label")
    pictures = [np.asarray(picture) for part in partitions for picture in part[image]]
    labels = np.concatenate([np.asarray(part[label]) for part in partitions])
    width = len(str(len(partitions) - 1))
    users = [f"user-{number:0{width}d}" for number, part in enumerate(partitions) for _ in range(len(part))]
    names = getattr(partitions[0].features.get(label), "names", None)
    return from_images(pictures, labels, users=users, classes=names)


def _first(known: Sequence[str], wanted: Sequence[str], what: str) -> str:
    for name in wanted:
        if name in known:
            return name
    raise HharError(
        f"partitions: must have a column {' or '.join(wanted)}, have {', '.join(known)}; name it: {what}=…"
    )


def _pictures(images: Any) -> NDArray[Any]:
    """(N, C, H, W) uint8 or float32."""
    if isinstance(images, (list, tuple)):
        sizes = {np.shape(picture) for picture in images}
        if len(sizes) > 1:
            raise HharError(
                f"images: must be of one size, are of {len(sizes)}, as {sorted(sizes)[:2]}; resize them"
            )
    x = np.asarray(images)
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
    return x if x.dtype == np.uint8 else x.astype(np.float32)


def _dealt(
    users: int | Sequence[Any] | NDArray[Any], per_user: int | None, count: int
) -> tuple[NDArray[np.int64], NDArray[np.str_]]:
    """Indices of the kept pictures, and the user of each."""
    if per_user is not None and per_user < 1:
        raise HharError(f"per_user: must be at least 1, is {per_user}; leave it out for all")
    if isinstance(users, (int, np.integer)):
        most = min(MOST_USERS, count)
        if not 1 <= users <= most:
            raise HharError(
                f"users: must be 1 to {most} for {count} pictures, is {users}; take for example 10"
            )
        size = count // int(users) if per_user is None else per_user
        if size * int(users) > count:
            raise HharError(
                f"users: must need at most the {count} pictures that there are, need {users} × {size}; lower "
                "users or per_user"
            )
        width = len(str(int(users) - 1))
        names = [f"user-{number:0{width}d}" for number in range(int(users))]
        start = (
            np.arange(int(users)) * count // int(users) if per_user is None else np.arange(int(users)) * size
        )
        end = np.append(start[1:], count) if per_user is None else start + size
        kept = np.concatenate([np.arange(a, b) for a, b in zip(start, end, strict=True)])
        return kept, np.repeat(np.array(names), end - start)
    given = np.asarray(users).astype(np.str_)
    if given.shape != (count,):
        raise HharError(
            f"users: must be one name a picture, {count}, are of shape {given.shape}; or a number"
        )
    if per_user is None:
        return np.arange(count), given
    kept = np.sort(np.concatenate([np.flatnonzero(given == name)[:per_user] for name in np.unique(given)]))
    return kept, given[kept]
