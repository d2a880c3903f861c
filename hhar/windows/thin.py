"""A smaller window file from a larger one, for studies of many runs: fewer windows, fewer samples each.

Shape letters: N windows, C channels, T samples.
"""

from dataclasses import replace

import numpy as np

from hhar.errors import HharError
from hhar.windows.window_file import Windows


def thin(windows: Windows, keep_every: int = 1, mean_of: int = 1) -> Windows:
    """Every n-th window of each user, with runs of k consecutive samples averaged.

    Overlapping windows add little information to their neighbours. The mean of k consecutive samples is a
    low-pass filter and divides the sampling rate by k. All else known of a window, as its part, stays.

    Args:
        windows: N windows; those of a user in order of time.
        keep_every: n; 1 keeps all, otherwise each user's first, (n + 1)-th, …
        mean_of: k samples, averaged into one; must divide T.

    Raises:
        HharError: n or k is below 1, k does not divide T, or k is over 1 for other inputs than samples in
            time.
    """
    for name, value in (("keep-every", keep_every), ("mean-of", mean_of)):
        if value < 1:
            raise HharError(f"thin: {name} must be at least 1, but is {value}; omit it to change nothing")
    users = np.unique(windows.user)
    rows = np.sort(np.concatenate([np.flatnonzero(windows.user == user)[::keep_every] for user in users]))
    windows = windows.taken(rows)
    if mean_of > 1:
        _refuse_without_samples(windows, mean_of)
        # bytes are brightness, 0..1 as a number
        divisor = np.float64(255 if windows.x.dtype == np.uint8 else 1)
        runs = windows.x.reshape(*windows.x.shape[:2], -1, mean_of)
        windows = replace(windows, x=(runs.mean(axis=3, dtype=np.float64) / divisor).astype(np.float32))
    return replace(windows, about=_about(windows, keep_every, mean_of))


def _refuse_without_samples(windows: Windows, mean_of: int) -> None:
    """Raise HharError unless runs of samples can be averaged."""
    x, y = windows.x, windows.y
    if x.ndim == 4:
        raise HharError("thin: mean-of must be 1 for images, which have no samples in time; omit it")
    if x.ndim != 3 or x.dtype == np.int64:
        inputs = "tokens" if x.dtype == np.int64 else f"windows of shape {x.shape[1:]}"
        raise HharError(f"thin: mean-of must be 1 for {inputs}, which have no samples in time; omit it")
    samples = x.shape[2]
    if samples % mean_of:
        raise HharError(
            f"thin: mean-of must divide the {samples} samples of a window, but is {mean_of}; "
            f"choose one of {', '.join(str(k) for k in range(1, samples + 1) if samples % k == 0)}"
        )
    if y.dtype == np.int64 and y.ndim > 1 and y.shape[1] == samples != len(windows.classes):
        raise HharError("thin: mean-of must be 1 where y has a class for each sample; omit it")


def _about(windows: Windows, keep_every: int, mean_of: int) -> dict[str, str]:
    """Description of the windows, with their present rate and stride."""
    about = dict(windows.about)
    for name, factor in (("rate_hz", 1 / mean_of), ("stride_s", keep_every)):
        if name in about and factor != 1:
            try:
                about[name] = f"{float(about[name]) * factor:g}"
            except ValueError:  # not a number, and no longer true
                del about[name]
    return about
