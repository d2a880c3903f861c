"""Window files: labelled sensor windows in one `.npz` without pickles.

Array shapes use N windows, C channels, T samples. A window file holds `x` float32 (N, C, T), or float32 or
uint8 images (N, C, H, W), `y` int64 (N), `user` str (N), optionally `device` str (N) and `session` str (N),
then `classes` str and `channels` str (C).
Everything that is read from disk is checked, because such files are made by hand and by other tools too.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hhar.errors import HharError
from hhar.npz import NpzError, read_npz

REQUIRED_ARRAYS = ("x", "y", "user", "classes", "channels")
OPTIONAL_ARRAYS = ("device", "session")
REBUILD_HINT = "write it again with `hhar prepare` or `hhar synthesize`"


class WindowFileError(HharError):
    """A window file is missing, damaged, or breaks a rule of the format."""


@dataclass(frozen=True)
class Windows:
    """Labelled windows of N recordings cut to equal length.

    Attributes:
        x: float32 (N, C, T); acceleration in m/s², angular velocity in rad/s unless the source normalised
            them. Or images (N, C, H, W); uint8 is brightness from 0 to 255.
        y: int64 (N), index into `classes`.
        user: str (N), who wore the sensors.
        device: str (N), which phone or watch, or None where unknown.
        session: str (N), the leak unit: windows of one session must stay on one side of a split. Here one
            activity bout of one user, shared by all devices that recorded it, e.g. "a/bike/01".
        classes: activity names in label order.
        channels: C channel names, e.g. "acc_x".
    """

    x: NDArray[np.float32] | NDArray[np.uint8]
    y: NDArray[np.int64]
    user: NDArray[np.str_]
    device: NDArray[np.str_] | None
    session: NDArray[np.str_] | None
    classes: tuple[str, ...]
    channels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.x)


def save_windows(path: str | Path, windows: Windows, *, compress: bool = False) -> Path:
    """Write `windows` to `path`, whole or not at all.

    The arrays go to a temporary name beside the target and are moved over it at the end, so a reader never
    sees half a file. Uncompressed by default, for
    speed: sensor noise hardly compresses.

    Raises:
        WindowFileError: the windows break a rule of the format, or the folder cannot be written.
    """
    target = Path(path)
    check_windows(windows, str(target))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    write: Any = np.savez_compressed if compress else np.savez
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            write(stream, **_arrays(windows))
        os.replace(temporary, target)
    except OSError as error:
        raise WindowFileError(
            f"{target}: cannot be written ({error.strerror}); choose another path"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return target


def load_windows(path: str | Path) -> Windows:
    """Read and check a window file.

    Raises:
        WindowFileError: one line with the name, the broken rule, the value found and the next step.
    """
    source = Path(path)
    arrays = _read_arrays(source)
    windows = Windows(
        x=arrays["x"],
        y=arrays["y"],
        user=arrays["user"],
        device=arrays.get("device"),
        session=arrays.get("session"),
        classes=tuple(str(name) for name in np.atleast_1d(arrays["classes"])),
        channels=tuple(str(name) for name in np.atleast_1d(arrays["channels"])),
    )
    check_windows(windows, str(source))
    return windows


def fingerprint(path: str | Path) -> str:
    """SHA-256 (hex) of the bytes of a file, read in blocks."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fingerprint_windows(windows: Windows) -> str:
    """SHA-256 (hex) of the arrays: names, dtypes, shapes and values, whatever the file around them."""
    digest = hashlib.sha256()
    for name, array in sorted(_arrays(windows).items()):
        if array.dtype.kind == "U":  # the same text in a wider array is the same content
            body: Any = "\0".join(array.tolist()).encode()
            header = f"{name}|str|{array.shape}"
        else:
            body = np.ascontiguousarray(array).data
            header = f"{name}|{array.dtype.str}|{array.shape}"
        digest.update(header.encode())
        digest.update(body)
    return digest.hexdigest()


def check_windows(windows: Windows, name: str) -> None:
    """Raise `WindowFileError` at the first rule that `windows` breaks; `name` begins the message."""
    _check_types(windows, name)
    num_windows = len(windows.x)
    if num_windows == 0:
        raise WindowFileError(f"{name}: x must hold at least one window, holds 0; {REBUILD_HINT}")
    for key, array in _arrays(windows).items():
        if key not in ("classes", "channels") and len(array) != num_windows:
            raise WindowFileError(
                f"{name}: {key} must have one entry per window, has {len(array)} for {num_windows} "
                f"windows; {REBUILD_HINT}"
            )
    if len(windows.channels) != windows.x.shape[1]:
        raise WindowFileError(
            f"{name}: channels must name each of the {windows.x.shape[1]} channels of x, "
            f"names {len(windows.channels)}; {REBUILD_HINT}"
        )
    _check_names(windows, name)
    _check_labels(windows, name)
    _check_finite(windows.x, name)


def _check_names(windows: Windows, name: str) -> None:
    """Raise for a name that cannot be printed: it would reach terminals, logs and pages as a command."""
    for key, array in _arrays(windows).items():
        if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
            codes = np.ascontiguousarray(array).view(np.uint32)
            used = np.flatnonzero(np.bincount(codes.ravel()))
            odd = [code for code in used.tolist() if code and not chr(code).isprintable()]
            if odd:
                raise WindowFileError(
                    f"{name}: {key} must hold names that can be printed, holds the character "
                    f"{chr(odd[0])!a}; {REBUILD_HINT}"
                )


def _check_types(windows: Windows, name: str) -> None:
    x, y = windows.x, windows.y
    if x.dtype not in (np.float32, np.uint8) or x.ndim not in (3, 4) or 0 in x.shape[1:]:
        raise WindowFileError(
            f"{name}: x must be float32 or uint8 of shape (windows, channels, samples) or (images, channels, "
            f"height, width), is {x.dtype} {x.shape}; {REBUILD_HINT}"
        )
    if y.dtype != np.int64 or y.ndim != 1:
        raise WindowFileError(
            f"{name}: y must be int64 of shape (windows,), is {y.dtype} {y.shape}; {REBUILD_HINT}"
        )
    texts = {"user": windows.user, "device": windows.device, "session": windows.session}
    for key, array in texts.items():
        if array is not None and (array.dtype.kind != "U" or array.ndim != 1):
            raise WindowFileError(
                f"{name}: {key} must be str of shape (windows,), is {array.dtype} {array.shape}; "
                f"{REBUILD_HINT}"
            )


def _check_labels(windows: Windows, name: str) -> None:
    classes, y = windows.classes, windows.y
    if len(set(classes)) != len(classes):
        raise WindowFileError(
            f"{name}: classes must differ from each other, are {list(classes)}; {REBUILD_HINT}"
        )
    wrong = np.flatnonzero((y < 0) | (y >= len(classes)))
    if len(wrong):
        raise WindowFileError(
            f"{name}: y must lie in 0..{len(classes) - 1} ({len(classes)} classes), "
            f"{len(wrong)} do not, first is window {wrong[0]} with {y[wrong[0]]}; {REBUILD_HINT}"
        )
    present = np.unique(y)
    if len(present) < 2:
        raise WindowFileError(
            f"{name}: at least two classes must occur in y, only {classes[present[0]]!r} does; add "
            "recordings of another activity"
        )


def _check_finite(x: NDArray[Any], name: str) -> None:
    bad: list[int] = []
    if x.dtype == np.uint8:
        return
    for start in range(0, len(x), 4096):  # in blocks: the mask of a large file would double its memory
        finite = np.isfinite(x[start : start + 4096]).all(axis=tuple(range(1, x.ndim)))
        bad.extend((start + np.flatnonzero(~finite)).tolist())
    if bad:
        raise WindowFileError(
            f"{name}: x must be finite, {len(bad)} of {len(x)} windows hold NaN or infinity, "
            f"first is window {bad[0]}; remove them or {REBUILD_HINT}"
        )


def _arrays(windows: Windows) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {"x": windows.x, "y": windows.y, "user": windows.user}
    if windows.device is not None:
        arrays["device"] = windows.device
    if windows.session is not None:
        arrays["session"] = windows.session
    arrays["classes"] = np.array(windows.classes, dtype=np.str_)
    arrays["channels"] = np.array(windows.channels, dtype=np.str_)
    return arrays


def _read_arrays(source: Path) -> dict[str, NDArray[Any]]:
    if not os.path.isfile(source):  # false, too, for what can be no path
        raise WindowFileError(
            f"{source}: window file must exist; make one with `hhar prepare` or `hhar synthesize`"
        )
    try:
        with source.open("rb") as stream:
            if stream.read(6) == np.lib.format.MAGIC_PREFIX:
                raise NpzError("must be an .npz archive, is a single array")
            arrays = read_npz(stream, REQUIRED_ARRAYS, OPTIONAL_ARRAYS)
    except NpzError as error:
        raise WindowFileError(f"{source}: {error}; {REBUILD_HINT}") from error
    except Exception as error:  # damaged bytes: zipfile, zlib and numpy raise a dozen kinds, none documented
        raise WindowFileError(
            f"{source}: must be an .npz archive, cannot be read ({_short(error)}); {REBUILD_HINT}"
        ) from error
    for name in ("classes", "channels"):
        if arrays[name].dtype.kind != "U" or arrays[name].ndim != 1:
            found = f"{arrays[name].dtype} {arrays[name].shape}"
            raise WindowFileError(f"{source}: {name} must be a list of str, is {found}; {REBUILD_HINT}")
    for name, array in arrays.items():
        if array.dtype.kind == "U" and not _is_text(array):
            raise WindowFileError(f"{source}: {name} must be text, holds bytes that are none; {REBUILD_HINT}")
    return arrays


def _short(error: Exception) -> str:
    """Return an error's words, or its kind where it has none."""
    return str(error)[:200] or type(error).__name__


def _is_text(array: NDArray[np.str_]) -> bool:
    """Tell whether every character of an array of str is one: numpy does not check the numbers it reads."""
    if array.dtype.itemsize == 0 or array.size == 0:
        return True
    codes = np.ascontiguousarray(array).reshape(-1).view(array.dtype.byteorder.replace("=", "") + "u4")
    return bool(((codes < 0xD800) | ((codes > 0xDFFF) & (codes <= 0x10FFFF))).all())
