"""Describe a window file in a few lines of text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hhar.quantity import quantity
from hhar.windows.window_file import fingerprint, fingerprint_windows, load_windows


def describe_file(path: str | Path) -> str:
    """Users, devices, classes, windows per user and class, sessions, shape and fingerprints of a window file.

    Raises:
        WindowFileError: the file is missing or damaged.
    """
    windows = load_windows(path)
    users = sorted(set(windows.user.tolist()))
    num, channels, *sizes = windows.x.shape
    samples = quantity(sizes[0], "sample") if len(sizes) == 1 else " × ".join(map(str, sizes)) + " pixels"
    lines = [
        f"file         {path}",
        f"shape        {quantity(num, 'window')} × {quantity(channels, 'channel')} × {samples}",
        f"channels     {', '.join(windows.channels)}",
        f"classes      {', '.join(windows.classes)}",
        f"users        {len(users)}",
    ]
    if windows.device is None:
        lines.append("devices      not recorded")
    else:
        names, counts = np.unique(windows.device, return_counts=True)
        shown = ", ".join(
            f"{name} ({count})" for name, count in zip(names.tolist(), counts.tolist(), strict=True)
        )
        lines.append(f"devices      {shown}")
    if windows.session is None:
        lines.append("sessions     not recorded")
    else:
        lines.append(f"sessions     {len(set(windows.session.tolist()))}")
    lines += [f"{key:<12} {text}" for key, text in windows.about.items()]
    lines += [f"contents     {fingerprint_windows(windows)}", f"file sha256  {fingerprint(path)}", ""]
    width = max(8, *(len(name) for name in windows.classes)) + 1
    lines.append("windows".ljust(10) + "".join(name.rjust(width) for name in (*windows.classes, "all")))
    for user in users:
        counts_of_user = np.bincount(
            windows.labels[windows.user == user], minlength=len(windows.classes)
        ).tolist()
        row = (*counts_of_user, sum(counts_of_user))
        lines.append(user.ljust(10) + "".join(str(count).rjust(width) for count in row))
    return "\n".join(lines)
