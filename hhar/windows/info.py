"""Describe a window file in a few lines of text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hhar.quantity import quantity
from hhar.windows.window_file import Windows, fingerprint, fingerprint_windows, load_windows


def describe_file(path: str | Path) -> str:
    """Users, devices, classes, windows per user and class, sessions, shape and fingerprints of a window file.

    Raises:
        WindowFileError: the file is missing or damaged.
    """
    windows = load_windows(path)
    users = sorted(set(windows.user.tolist()))
    lines = [
        f"file         {path}",
        f"shape        {quantity(len(windows), 'window')} × {size_of_window(windows)}",
        f"channels     {', '.join(windows.channels)}",
        f"classes      {', '.join(windows.classes)}",
        f"users        {len(users)}",
    ]
    if windows.device is None:
        lines.append("devices      not recorded")
    else:
        names, counts = np.unique(windows.device, return_counts=True)
        lines.append(f"devices      {_format_counts(names, counts)}")
    if windows.session is None:
        lines.append("sessions     not recorded")
    else:
        lines.append(f"sessions     {windows.session_count}")
    if windows.part is not None:
        names, counts = np.unique(windows.part, return_counts=True)
        lines.append(f"part         {_format_counts(names, counts)}")
    if not windows.has_labels:
        shape = " × ".join(map(str, windows.y.shape[1:])) or "1"
        lines.append(f"y            {shape} {windows.y.dtype} for each window")
    lines += [f"{key:<12} {text}" for key, text in windows.about.items()]
    lines += [f"contents     {fingerprint_windows(windows)}", f"file sha256  {fingerprint(path)}", ""]
    classes = windows.classes if windows.has_labels else ()
    width = max(8, *(len(name) for name in (*classes, "all"))) + 1
    lines.append("windows".ljust(10) + "".join(name.rjust(width) for name in (*classes, "all")))
    for user in users:
        user_labels = windows.y[windows.user == user]
        of_classes = np.bincount(user_labels, minlength=len(classes)).tolist() if classes else []
        row = (*of_classes, len(user_labels))
        lines.append(user.ljust(10) + "".join(str(count).rjust(width) for count in row))
    return "\n".join(lines)


def _format_counts(names: np.ndarray, counts: np.ndarray) -> str:
    """Names with their numbers of windows."""
    return ", ".join(f"{name} ({count})" for name, count in zip(names.tolist(), counts.tolist(), strict=True))


def size_of_window(windows: Windows) -> str:
    """Size of one window in words: its channels, and samples, pixels or tokens.

    >>> from hhar.synthetic.generate import synthetic_windows
    >>> size_of_window(synthetic_windows(1))
    '6 channels × 128 samples'
    """
    sizes = list(map(str, windows.x.shape[1:]))
    if windows.x.dtype == np.int64:
        return f"{' × '.join(sizes)} tokens"
    channels = quantity(windows.x.shape[1], "channel")
    if len(sizes) == 2:
        return f"{channels} × {quantity(windows.x.shape[2], 'sample')}"
    return " × ".join([channels, *sizes[1:]]) + (" pixels" if len(sizes) == 3 else "")
