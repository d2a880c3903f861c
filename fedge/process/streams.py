"""The standard streams of a process that must not care whether anybody reads them."""

import os
import sys
from contextlib import suppress
from typing import TextIO


def open_missing_streams() -> None:
    """Open descriptors 0, 1 and 2 where they are closed: else a file gets theirs, and the output."""
    for descriptor in (0, 1, 2):
        if not _is_open(descriptor):
            os.open(os.devnull, os.O_RDWR)  # gets the smallest free number: this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def replace_unprintable() -> None:
    """Print ? for a letter that a terminal's encoding lacks, as – or ≥ where it is not UTF-8: no error."""
    with suppress(AttributeError, OSError, ValueError):  # not a text stream of Python's, or closed
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def forget_unread() -> None:
    """Drop output that standard output and error cannot take: the exit code stays the process's own."""
    _forget_unread(sys.stdout)
    _forget_unread(sys.stderr)


def _forget_unread(stream: TextIO) -> None:
    """Flush a stream; where that fails, let its descriptor lead nowhere."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
