"""Window files: labelled sensor windows in one `.npz` without pickles.

Array shapes use N windows, C channels, T samples, U outputs. A window file holds `x`: float32 (N, C, T), or
float32 or uint8 images (N, C, H, W), rows (N, C) or another array of at least two axes, or tokens int64 (N,
…), which have no channels; `y`: int64 (N), or another task's targets, int64 (N, …) or float32 (N) or (N, U);
`user` str (N); optionally `device` str (N), `session` str (N) and `part` str (N); `classes` str (U) and
`channels` str (C); and optionally `about` str (k, 2), pairs of a name and a text such as source, licence,
citation, units.

All arrays read from disk are checked, because such files are also made by hand and by other tools.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hhar.errors import HharError
from hhar.npz import NpzError, read_npz
from hhar.quantity import quantity
from hhar.windows.rounding import coarse_words, too_coarse

REQUIRED_ARRAYS = ("x", "y", "user", "classes", "channels")
OPTIONAL_ARRAYS = ("device", "session", "part", "about")
PARTS = ("train", "val", "test")
_TABLES = {".csv", ".tsv", ".txt", ".parquet", ".feather", ".arrow", ".xls", ".xlsx", ".json"}
REBUILD_HINT = "correct the arrays and save them again; docs/data.md describes the format"
LABEL_HINT = (
    "y holds indices into classes: classes, y = numpy.unique(labels, return_inverse=True), or, to be "
    "predicted as a number, float32; docs/data.md"
)
_LARGEST = np.iinfo(np.int64).max
MOST = 1e18  # of a number in x or y: no sensor measures more, and float32 holds its square
MAX_ABOUT = 20_000  # characters of a file's self-description


class WindowFileError(HharError):
    """A window file is missing, damaged, or breaks a rule of the format."""


@dataclass(frozen=True)
class Windows:
    """N labelled windows of equal length, cut from recordings.

    Attributes:
        x: float32 (N, C, T); acceleration in m/s², angular velocity in rad/s unless the source normalised
            them. Or images (N, C, H, W); uint8 is brightness from 0 to 255. Or rows (N, C), or more axes. Or
            int64 (N, …): tokens, numbered from 0.
        y: int64 (N), index into `classes`. For other tasks than classification int64 (N, …), an index at
            every position, -1 for none, or 0 and 1 for every class; or float32 (N) or (N, U), numbers.
        user: str (N), wearer of the sensors.
        device: str (N), phone or watch, or None if unknown.
        session: str (N), the leak unit: windows of one session must stay on one side of a split. In HHAR one
            activity bout of one user, shared by all devices that recorded it, e.g. "a/bike/01". Or None if
            unknown.
        classes: activity names in label order; names of outputs if y holds numbers.
        channels: C channel names, e.g. "acc_x"; none for tokens.
        about: description of the data, by name: source, licence, citation, units, rate_hz; "cast" if arrays
            were cast from other types. Not part of the fingerprint of the contents.
        part: str (N), "train", "val" or "test" if the data come with a split of their own, or None.
    """

    x: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int64]
    y: NDArray[np.int64] | NDArray[np.float32]
    user: NDArray[np.str_]
    device: NDArray[np.str_] | None
    session: NDArray[np.str_] | None
    classes: tuple[str, ...]
    channels: tuple[str, ...]
    about: Mapping[str, str] = field(default_factory=dict)
    part: NDArray[np.str_] | None = None

    @property
    def has_labels(self) -> bool:
        """Whether y is one class per window."""
        return self.y.ndim == 1 and self.y.dtype == np.int64

    @property
    def labels(self) -> NDArray[np.int64]:
        """Class of each window, int64 (N); zeros if y is not one class per window."""
        if self.has_labels:
            return self.y  # type: ignore[return-value]
        return np.zeros(len(self.y), dtype=np.int64)

    @property
    def session_count(self) -> int | None:
        """Number of sessions, where equal names of two users are two; None if unknown."""
        if self.session is None:
            return None
        return len(set(zip(self.user.tolist(), self.session.tolist(), strict=True)))

    def taken(self, rows: NDArray[np.int64]) -> Windows:
        """The windows at `rows` (n,), in that order, with everything known of each."""
        arrays = {
            key: array[rows] for key, array in {"x": self.x, "y": self.y, **_origin_arrays(self)}.items()
        }
        return replace(self, **arrays)  # type: ignore[arg-type]

    def save(self, path: str | Path, *, compress: bool = False) -> Path:
        """Write a window file; see `save_windows`."""
        return save_windows(path, self, compress=compress)

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        """Counts and names in one line, without the arrays."""
        try:
            text = self._summary()
        except Exception:  # arrays of another form, before `check_windows` has seen them
            text = f"<Windows of an odd form: x {type(self.x).__name__}, y {type(self.y).__name__}>"
        return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)

    def _summary(self) -> str:
        """Text of `repr` for windows in the format."""
        shape = " × ".join(map(str, np.shape(self.x)[1:]))
        kinds = {"user": len(np.unique(self.user))}
        if (sessions := self.session_count) is not None:
            kinds["session"] = sessions
        counts = ", ".join(quantity(number, name) for name, number in kinds.items())
        name_lists = {"classes": self.classes, "channels": self.channels}
        names = [
            f"{field} {_shortened(values)}"
            for field, values in name_lists.items()
            if values is not None and len(values)
        ]
        return (
            f"<Windows: {len(self.x)} of {shape} {np.asarray(self.x).dtype}, {', '.join([counts, *names])}>"
        )


def _shortened(names: tuple[str, ...]) -> str:
    """Names in one line, shortened to the first six."""
    text = ", ".join(map(str, names[:6]))
    return text if len(names) <= 6 else f"{text}, … ({len(names)})"


def save_windows(path: str | Path, windows: Windows, *, compress: bool = False) -> Path:
    """Write `windows` to `path`, completely or not at all, and return the path.

    The arrays go to a temporary file beside the target, which replaces the target at the end, so a reader
    never sees half a file. Uncompressed by default, for speed: sensor noise hardly compresses.

    Raises:
        WindowFileError: the windows break a rule of the format, or the file cannot be written.
    """
    target = Path(path)
    windows = as_format(windows)
    check_windows(windows, str(target))
    if target.exists() and not target.is_file():  # a device must not be replaced
        raise WindowFileError(f"{target}: must be a regular file or new, but is not; choose another path")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    write: Any = np.savez_compressed if compress else np.savez
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            write(stream, **_stored_arrays(windows), **_about(windows))
        os.replace(temporary, target)
    except OSError as error:
        raise WindowFileError(
            f"{target}: cannot be written ({error.strerror or error}); choose another path"
        ) from error
    finally:
        with suppress(OSError):  # on a full disk it may not exist
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
        about=_read_about(arrays.get("about"), source),
        part=arrays.get("part"),
    )
    windows = as_format(windows)
    check_windows(windows, str(source))
    return windows


def as_format(windows: Windows) -> Windows:
    """Windows with the types of the format: numbers cast, labels to int64, names to str.

    Casts are recorded in `about["cast"]`; arrays that cannot be cast stay as they are, for `check_windows` to
    refuse.
    """
    windows = _with_plain_arrays(windows)
    cast: dict[str, NDArray[Any]] = {}
    for key, array in (("x", windows.x), ("y", windows.y), *_origin_arrays(windows).items()):
        if (converted := _cast(key, array, is_tokens=_is_empty(windows.channels))) is not None:
            cast[key] = converted
    if not cast:
        return windows
    changes = [
        f"{key} from {getattr(windows, key).dtype} to {_dtype_name(array)}{_coarse(windows, key, array)}"
        for key, array in cast.items()
    ]
    if not isinstance(windows.about, Mapping):
        return replace(windows, **cast)  # for `check_windows` to refuse
    about = {**windows.about, "cast": ", ".join(changes)}
    return replace(windows, **cast, about=about)  # type: ignore[arg-type]


def _with_plain_arrays(windows: Windows) -> Windows:
    """Windows in NumPy's own class of arrays, memory maps and the like, and with names in tuples of text."""
    fields: dict[str, Any] = {}
    for key in ("x", "y", "user", "device", "session", "part"):
        array = getattr(windows, key)
        if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray):
            fields[key] = np.asarray(array)
    for key in ("classes", "channels"):
        names = getattr(windows, key)
        if _is_sequence(names):
            fields[key] = tuple(str(name) if isinstance(name, (str, Integral)) else name for name in names)
    return replace(windows, **fields)


def _cast(key: str, array: Any, *, is_tokens: bool) -> NDArray[Any] | None:
    """An array cast to the type of the format; None if it has this type already or cannot be cast."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return None
    kind = array.dtype.kind
    if kind == "u" and array.size and array.max() > _LARGEST:  # would turn negative
        return None
    if key == "x":
        if is_tokens and kind in "iu":  # integers without channels
            return None if array.dtype == np.int64 else array.astype(np.int64)
        if kind not in "fiub" or array.dtype in (np.float32, np.uint8):
            return None
        with np.errstate(over="ignore"):  # numbers too large become infinite and are refused as such
            return array.astype(np.float32)
    if key == "y":
        if kind == "f" and array.dtype != np.float32:
            with np.errstate(over="ignore"):
                return array.astype(np.float32)
        return None if kind not in "iub" or array.dtype == np.int64 else array.astype(np.int64)
    if kind == "U" and not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    if kind == "O" and any("\0" in name for name in array.flat if isinstance(name, str)):
        return None  # NumPy leaves out a NUL at the end
    if kind in "iu" or (kind == "O" and all(isinstance(name, str) for name in array.flat)):
        return array.astype(np.str_)
    return None


def _coarse(windows: Windows, key: str, cast: NDArray[Any]) -> str:
    """Words on the channels of x or outputs of y too coarse after a cast to float32; else ""."""
    if cast.dtype != np.float32 or not len(cast) or 0 in cast.shape:
        return ""
    array, names = getattr(windows, key), windows.channels if key == "x" else windows.classes
    columns = (array[:, None], cast[:, None]) if cast.ndim == 1 else (array, cast)
    return coarse_words(
        [
            (
                str(names[at]) if at < len(names) else f"{key}[{at}]",
                too_coarse(columns[0][:, at], columns[1][:, at]),
            )
            for at in range(columns[1].shape[1])
        ]
    )


def _is_empty(names: Any) -> bool:
    """Whether `names` is an empty sequence; other types are refused by `check_windows`."""
    return _is_sequence(names) and len(names) == 0


def _is_sequence(names: Any) -> bool:
    """Whether `names` is a tuple, a list or an array with one axis."""
    return isinstance(names, (tuple, list)) or (isinstance(names, np.ndarray) and names.ndim == 1)


def _dtype_name(array: NDArray[Any]) -> str:
    return "str" if array.dtype.kind == "U" else str(array.dtype)


def fingerprint(path: str | Path) -> str:
    """SHA-256 (hex) of the bytes of a file, read in blocks.

    Raises:
        OSError: it is missing, cannot be read, or is a folder, a device or a pipe.
    """
    if "\0" in str(path) or (os.path.exists(path) and not os.path.isfile(path)):
        raise OSError(errno.EINVAL, "it is not a regular file")
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fingerprint_windows(windows: Windows) -> str:
    """SHA-256 (hex) of the arrays: names, dtypes, shapes and values, independent of the file format."""
    digest = hashlib.sha256()
    for name, array in sorted(_stored_arrays(windows).items()):
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
    """Raise `WindowFileError` at the first rule broken by `windows`; `name` begins the message."""
    _check_types(windows, name)
    num_windows = len(windows.x)
    if num_windows == 0:
        raise WindowFileError(f"{name}: x must hold at least one window, but holds 0; {REBUILD_HINT}")
    for key, array in _stored_arrays(windows).items():
        if key not in ("classes", "channels") and len(array) != num_windows:
            raise WindowFileError(
                f"{name}: {key} must have one entry per window, but has {len(array)} for {num_windows} "
                f"windows; {REBUILD_HINT}"
            )
    channels = 0 if windows.x.dtype == np.int64 else windows.x.shape[1]
    if len(windows.channels) != channels:
        rule = (
            "be empty for tokens (int64 x)" if not channels else f"name each of the {channels} channels of x"
        )
        raise WindowFileError(
            f"{name}: channels must {rule}, but has {len(windows.channels)} names; {REBUILD_HINT}"
        )
    _check_names(windows, name)
    if sum(len(key) + len(text) for key, text in windows.about.items()) > MAX_ABOUT:
        raise WindowFileError(
            f"{name}: about must be at most {MAX_ABOUT} characters, but is longer; shorten it"
        )
    _check_parts(windows, name)
    _check_labels(windows, name)
    _check_finite(windows, name)
    _check_sizes(windows, name)
    if windows.x.dtype == np.int64 and windows.x.min() < 0:
        raise WindowFileError(
            f"{name}: tokens (int64 x) must be 0 or more, but go down to {windows.x.min()}; number from 0"
        )


def _check_names(windows: Windows, name: str) -> None:
    """Refuse names with unprintable characters: terminals, logs and pages could take them as commands."""
    for key, array in {**_stored_arrays(windows), **_about(windows)}.items():
        if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
            codes = np.ascontiguousarray(array).view(np.uint32)
            if not _is_text(array):
                raise WindowFileError(
                    f"{name}: {key} must be text, but holds invalid characters; {REBUILD_HINT}"
                )
            used = np.flatnonzero(np.bincount(codes.ravel()))
            odd = [code for code in used.tolist() if code and not chr(code).isprintable()]
            rows = codes.reshape(array.size, -1)
            if not odd and ((rows[:, :-1] == 0) & (rows[:, 1:] != 0)).any():  # NULs at the end are none
                odd = [0]
            if odd:
                raise WindowFileError(
                    f"{name}: {key} must hold printable names, but holds the character "
                    f"{chr(odd[0])!a}; {REBUILD_HINT}"
                )


def _check_types(windows: Windows, name: str) -> None:
    x, y = windows.x, windows.y
    for key in ("classes", "channels"):
        names = getattr(windows, key)
        if not _is_sequence(names):
            raise WindowFileError(
                f"{name}: {key} must be a tuple of names, but is {type(names).__name__}; "
                f'write {key}=("…", "…")'
            )
        odd = [item for item in names if not isinstance(item, str) or "\0" in item]
        if odd:
            raise WindowFileError(
                f"{name}: {key} must be a tuple of printable names, but has {_one_line(odd[0])}; "
                f'write {key}=("…", "…")'
            )
    about = windows.about
    if not isinstance(about, Mapping) or not all(
        isinstance(text, str) for pair in about.items() for text in pair
    ):
        raise WindowFileError(
            f"{name}: about must be text by name, but is {_one_line(about)}; write about={{'source': '…'}}"
        )
    for key, array in {"x": x, "y": y, "user": windows.user, **_origin_arrays(windows)}.items():
        if isinstance(array, np.ma.MaskedArray):
            raise WindowFileError(
                f"{name}: {key} must not be masked, but is a masked array; leave out what is masked, or fill "
                f"it: {key}.filled(…)"
            )
        if not isinstance(array, np.ndarray):
            raise WindowFileError(
                f"{name}: {key} must be a NumPy array, but is {type(array).__name__}; convert it: "
                f"numpy.asarray({key})"
            )
    if x.dtype not in (np.float32, np.uint8, np.int64) or x.ndim < 2 or 0 in x.shape[1:]:
        raise WindowFileError(
            f"{name}: x must be float32 or uint8 of shape (windows, channels, samples), (images, channels, "
            f"height, width) or (rows, channels), or int64 tokens (rows, samples), "
            f"but is {x.dtype} {x.shape}; {_hint(x)}"
        )
    if y.dtype not in (np.int64, np.float32) or y.ndim < 1 or 0 in y.shape[1:]:
        raise WindowFileError(
            f"{name}: y must be int64 of shape (windows,), or int64 or float32 of the shape that a task "
            f"takes, but is {y.dtype} {y.shape}; {LABEL_HINT}"
        )
    for key, array in _origin_arrays(windows).items():
        if array.dtype.kind != "U" or array.ndim != 1:
            raise WindowFileError(
                f"{name}: {key} must be str of shape (windows,), but is {array.dtype} {array.shape}"
                f"{_way_to_names(key, array)}"
            )


def _way_to_names(key: str, array: NDArray[Any]) -> str:
    """Next step for an array of names that are no text."""
    if array.ndim != 1:
        return f"; {REBUILD_HINT}"
    if array.dtype.kind != "O":
        return f"; make it text: {key}.astype(str)"
    window = next((i for i, value in enumerate(array) if not isinstance(value, str)), 0)
    return f", in window {window} {_one_line(array[window])}; give every window a name, as text"


def _one_line(value: Any) -> str:
    """Short form of any value."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an object's own repr may fail
        return type(value).__name__
    return text if len(text) <= 200 else f"{text[:200]} …"


def _hint(x: NDArray[Any]) -> str:
    """Next step for windows of a wrong dtype or shape."""
    if x.dtype.kind != "O":
        return REBUILD_HINT
    lengths = {len(one) for one in x.flat if hasattr(one, "__len__") and not isinstance(one, (str, bytes))}
    if len(lengths) > 1:
        return f"they are of {min(lengths)} to {max(lengths)} entries: cut or pad all to one length"
    rows = "x.tolist()" if lengths else "x"
    return f"convert them to numbers: numpy.asarray({rows}, dtype='float32')"


def _check_labels(windows: Windows, name: str) -> None:
    classes, y = windows.classes, windows.y
    if len(set(classes)) != len(classes):
        raise WindowFileError(
            f"{name}: classes must differ from each other, but are {list(classes)}; {REBUILD_HINT}"
        )
    if not windows.has_labels:
        _check_targets(windows, name)
        return
    wrong = np.flatnonzero((y < 0) | (y >= len(classes)))
    if len(wrong):
        raise WindowFileError(
            f"{name}: y must be from 0 to {len(classes) - 1} ({len(classes)} classes), but "
            f"{len(wrong)} are not, the first in window {wrong[0]} with {y[wrong[0]]}; {LABEL_HINT}"
        )
    present = np.unique(y)
    if len(present) < 2:
        raise WindowFileError(
            f"{name}: at least two classes must occur in y, but only {classes[present[0]]!r} does; add "
            "windows of another class"
        )


def _check_targets(windows: Windows, name: str) -> None:
    """Refuse infinite or NaN numbers to predict, and positions outside the classes."""
    y, outputs = windows.y, len(windows.classes)
    if y.dtype == np.float32:
        wrong = np.flatnonzero(~np.isfinite(y).reshape(len(y), -1).all(axis=1))
        rule = "finite"
    else:
        highest = max(outputs, 2) - 1  # 0 and 1 if each class is present or not
        wrong = np.flatnonzero(((y < -1) | (y > highest)).reshape(len(y), -1).any(axis=1))
        rule = f"from -1 to {highest}"
    if len(wrong):
        raise WindowFileError(
            f"{name}: y must be {rule}, but is not in {len(wrong)} windows, first in window {wrong[0]}; "
            f"{REBUILD_HINT}"
        )
    if outputs < 1:
        raise WindowFileError(f"{name}: classes must name the outputs, but is empty; {REBUILD_HINT}")


def _check_parts(windows: Windows, name: str) -> None:
    """Refuse a split of the data's own with other parts, or without train or test."""
    if windows.part is None:
        return
    present = np.unique(windows.part).tolist()
    odd = [part for part in present if part not in PARTS]
    if odd or not {"train", "test"} <= set(present):
        raise WindowFileError(
            f"{name}: part must be train, val or test, with windows of train and test, but has "
            f"{', '.join(present[:5])}; {REBUILD_HINT}"
        )


def _check_finite(windows: Windows, name: str) -> None:
    x = windows.x
    bad: list[int] = []
    if x.dtype != np.float32:
        return
    for start in range(0, len(x), 4096):  # in blocks: the mask of a large file would double its memory
        finite = np.isfinite(x[start : start + 4096]).all(axis=tuple(range(1, x.ndim)))
        bad.extend((start + np.flatnonzero(~finite)).tolist())
    if bad:
        was_cast = str(windows.about.get("cast", "")).startswith("x from")
        content = "NaN, infinity or a number beyond float32" if was_cast else "NaN or infinity"
        raise WindowFileError(
            f"{name}: x must be finite, but {len(bad)} of {len(x)} windows hold {content}, "
            f"first window {bad[0]}; remove them or {REBUILD_HINT}"
        )


def _check_sizes(windows: Windows, name: str) -> None:
    """Refuse numbers whose squares float32 does not hold: their loss would be infinite, or no number."""
    for key, array, kind, names in (
        ("x", windows.x, "channel", windows.channels),
        ("y", windows.y, "output", windows.classes),
    ):
        if array.dtype != np.float32 or (len(array) and max(array.max(), -array.min()) <= MOST):
            continue
        sizes = np.abs(array.reshape(len(array), array.shape[1] if array.ndim > 1 else 1, -1)).max(axis=2)
        row, column = np.unravel_index(int(sizes.argmax()), sizes.shape)
        count = int((sizes > MOST).any(axis=1).sum())
        location = f" in {kind} {names[column]!r}" if column < len(names) else ""
        raise WindowFileError(
            f"{name}: {key} must be from -{MOST:g} to {MOST:g}, because float32 does not hold the squares of "
            f"larger numbers, but {count} of {len(array)} windows hold larger ones, the largest in size "
            f"{sizes[row, column]:.4g}{location} of user {str(windows.user[row])!r}, window {row}; remove "
            f"them, or change the unit"
        )


def _origin_arrays(windows: Windows) -> dict[str, NDArray[Any]]:
    """The arrays naming the origin of each window."""
    arrays = {
        "user": windows.user, "device": windows.device, "session": windows.session, "part": windows.part
    }  # fmt: skip
    return {key: array for key, array in arrays.items() if array is not None}


def _about(windows: Windows) -> dict[str, NDArray[Any]]:
    """Description of windows as an array (k, 2) of str, if there is any."""
    return {"about": np.array(list(windows.about.items()), dtype=np.str_)} if windows.about else {}


def _read_about(array: NDArray[Any] | None, source: Path) -> dict[str, str]:
    """`about` of a file as a dict."""
    if array is None:
        return {}
    if array.dtype.kind != "U" or array.ndim != 2 or array.shape[1] != 2:
        actual = f"{array.dtype} {array.shape}"
        raise WindowFileError(f"{source}: about must be str of shape (k, 2), but is {actual}; {REBUILD_HINT}")
    return {str(key): str(text) for key, text in array}


def _stored_arrays(windows: Windows) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {"x": windows.x, "y": windows.y, "user": windows.user}
    if windows.device is not None:
        arrays["device"] = windows.device
    if windows.session is not None:
        arrays["session"] = windows.session
    if windows.part is not None:
        arrays["part"] = windows.part
    arrays["classes"] = np.array(windows.classes, dtype=np.str_)
    arrays["channels"] = np.array(windows.channels, dtype=np.str_)
    return arrays


def _read_arrays(source: Path) -> dict[str, NDArray[Any]]:
    try:
        os.stat(source)
    except PermissionError as error:
        raise _unreadable_error(source, error) from error
    except (OSError, ValueError):  # an impossible path, too
        pass
    if not os.path.isfile(source):
        raise WindowFileError(
            f"{source}: window file must exist; make one with `fedge datasets`, `hhar prepare` or "
            "`hhar synthesize`"
        )
    if source.suffix.lower() in _TABLES:
        raise WindowFileError(
            f"{source}: must be a window file (.npz), but is a table; read it with pandas or Polars, and cut "
            "windows: fedge.from_pandas(frame, …).save('mine.npz'); docs/data.md"
        )
    try:
        with source.open("rb") as stream:
            if stream.read(6) == np.lib.format.MAGIC_PREFIX:
                raise NpzError("must be an .npz archive, but is a single array")
            arrays = read_npz(stream, REQUIRED_ARRAYS, OPTIONAL_ARRAYS)
    except NpzError as error:
        raise WindowFileError(f"{source}: {error}; {REBUILD_HINT}") from error
    except PermissionError as error:
        raise _unreadable_error(source, error) from error
    except Exception as error:  # damaged bytes: zipfile, zlib and numpy raise a dozen kinds, none documented
        raise WindowFileError(
            f"{source}: must be an .npz archive, but cannot be read ({_error_text(error)}); {REBUILD_HINT}"
        ) from error
    if arrays["channels"].shape == (0,):  # tokens; NumPy stores an empty list as numbers
        arrays["channels"] = np.array([], dtype=np.str_)
    for name in ("classes", "channels"):
        if arrays[name].dtype.kind != "U" or arrays[name].ndim != 1:
            actual = f"{arrays[name].dtype} {arrays[name].shape}"
            raise WindowFileError(f"{source}: {name} must be a list of str, but is {actual}; {REBUILD_HINT}")
    for name, array in arrays.items():
        if array.dtype.kind == "U" and not _is_text(array):
            raise WindowFileError(
                f"{source}: {name} must be text, but holds invalid characters; {REBUILD_HINT}"
            )
    return arrays


def _unreadable_error(source: Path, error: OSError) -> WindowFileError:
    """An error in one line."""
    return WindowFileError(
        f"{source}: window file must be readable for this user, but: {error.strerror or error}; change its "
        f"permissions or its folder's (chmod, chown)"
    )


def _error_text(error: Exception) -> str:
    """An error's message, or its type if it has none."""
    return str(error)[:200] or type(error).__name__


def _is_text(array: NDArray[np.str_]) -> bool:
    """Whether every character of an array of str is a valid code point, which numpy does not check."""
    if array.dtype.itemsize == 0 or array.size == 0:
        return True
    codes = np.ascontiguousarray(array).reshape(-1).view(array.dtype.byteorder.replace("=", "") + "u4")
    return bool(((codes < 0xD800) | ((codes > 0xDFFF) & (codes <= 0x10FFFF))).all())
