"""Windows to classify: raw, as recorded, with or without labels."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedge.config.registers.option import ConfigError, shown
from fedge.inference.card import Card
from hhar.errors import HharError
from hhar.npz import NpzError, read_npz
from hhar.regular import open_regular
from hhar.windows.window_file import MOST


@dataclass(frozen=True)
class RawWindows:
    """Windows of a file.

    Attributes:
        x: (N, C, T) or (N, C, H, W), float32 or uint8.
        user: (N,) str, or None if the file has no users.
    """

    x: np.ndarray
    user: np.ndarray | None


def read_raw_windows(path: Path, card: Card) -> RawWindows:
    """Read a window file, which need only hold `x`.

    Raises:
        ConfigError: it cannot be read, or holds other windows than the models take.
    """
    try:
        with open_regular(path) as stream:
            arrays = read_npz(stream, ("x",), ("user", "channels"))
    except OSError as error:
        raise ConfigError(
            f"data must be a readable file, but {path}: {error.strerror or error}; check the path"
        ) from error
    except HharError as error:
        raise ConfigError(f"data: {error}") from error
    except NpzError as error:
        raise ConfigError(f"data must be a window file, but {path}: {error}; see docs/data.md") from error
    except Exception as error:  # damaged bytes: zipfile, zlib and numpy raise a dozen kinds
        message = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError(f"data must be an .npz archive, but {path}: {message}; see docs/data.md") from error
    channels, user = arrays.get("channels"), arrays.get("user")
    if channels is not None and tuple(map(str, np.atleast_1d(channels))) != card.channels:
        raise ConfigError(
            f"channels must be those of training, {', '.join(card.channels)}, but {path} has "
            f"{', '.join(map(str, np.atleast_1d(channels)))}; bring them into that order"
        )
    x = checked(arrays["x"], card, str(path))
    if user is not None and user.dtype.kind in "iu":
        user = user.astype(np.str_)
    if user is not None and (user.dtype.kind != "U" or user.shape != (len(x),)):
        raise ConfigError(
            f"user must be a text per window, but {path} has {user.dtype} {user.shape}; leave it out"
        )
    return RawWindows(x, user)


def checked(x: Any, card: Card, name: str = "x") -> np.ndarray:
    """Windows as the models take them: float32 or uint8 (N, C, T) or (N, C, H, W).

    Other numbers are cast as in training; integers in place of bytes are refused, since their scale differs.

    Raises:
        ConfigError: another shape, another kind of numbers, NaN or infinity.
    """
    x = np.asarray(x)
    shape = ", ".join(map(str, card.input_shape))
    if x.ndim != len(card.input_shape) + 1 or x.shape[1:] != tuple(card.input_shape):
        raise ConfigError(
            f"{name} must hold windows of shape (windows, {shape}), as in training "
            f"({', '.join(card.channels)}), "
            f"but is of shape {x.shape}; cut and sample them alike"
        )
    if x.dtype.kind == "f" or (x.dtype.kind in "iub" and x.dtype != np.uint8 and card.dtype == "float32"):
        with np.errstate(over="ignore"):  # numbers too large become infinite and are refused as such
            x = x.astype(np.float32, copy=False)
    if card.dtype == "int64":
        if x.dtype.kind not in "iu" or (x.size and x.min() < 0):
            raise ConfigError(
                f"{name} must be tokens from 0 on, as in training, but is {x.dtype}; number them"
            )
        return x.astype(np.int64)
    if x.dtype not in (np.float32, np.uint8):
        raise ConfigError(f"{name} must be float32 or uint8, but is {shown(str(x.dtype))}; cast it")
    if x.dtype != np.uint8:
        finite = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
        if not finite.all():
            first = int(np.flatnonzero(~finite)[0])
            raise ConfigError(f"{name} must be finite, but window {first} is not; leave it out")
        large = (np.abs(x) > MOST).any(axis=tuple(range(1, x.ndim)))
        if large.any():
            first = int(np.flatnonzero(large)[0])
            raise ConfigError(
                f"{name} must be from -{MOST:g} to {MOST:g}, but window {first} holds a larger number; "
                f"leave it out"
            )
    return x


_FAR = 5.0  # standard deviations of training: people differ by one or two, units by tens


def scale_warning(x: np.ndarray, card: Card) -> str:
    """A warning if windows have another scale than those of training, for example another unit; else empty.

    Args:
        x: (N, C, T) or (N, C, H, W), float32 or uint8, from `checked`.
        card: card of the models; nothing is checked if it has no scaling.
    """
    if not card.mean or not len(x):
        return ""
    axes = (0, *range(2, x.ndim))
    scale = 255.0 if x.dtype == np.uint8 else 1.0
    mean, std = x.mean(axes, dtype=np.float64) / scale, x.std(axes, dtype=np.float64) / scale
    train_std = np.maximum(card.std, 1e-12)
    outside = np.flatnonzero((np.abs(mean - card.mean) > _FAR * train_std) | (std > _FAR * train_std))
    if not outside.size:
        return ""
    channel = int(outside[0])
    return (
        f"these windows are unlike those of training: {card.channels[channel]} is {mean[channel]:.3g} ± "
        f"{std[channel]:.3g}, was {card.mean[channel]:.3g} ± {card.std[channel]:.3g}; are units and channels "
        "the same?"
    )
