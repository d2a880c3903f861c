"""Standard streams of a process that must work even with its output unread."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# ASCII substitutes: a number that lost its minus would be another number
_IN_ASCII = str.maketrans(
    {"−": "-", "–": "-", "—": "-", "±": "+-", "≥": ">=", "≤": "<=", "×": "x", "✗": "x", "→": "->", "…": "..."}
)


def open_missing_streams() -> None:
    """Open descriptors 0, 1 and 2 if closed; otherwise a later file would get the number, and the output."""
    for descriptor in (0, 1, 2):
        if not _is_open(descriptor):
            os.open(os.devnull, os.O_RDWR)  # gets the smallest free number, i.e. this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def write_whole_output() -> None:
    """Let an unbuffered standard output (PYTHONUNBUFFERED) write everything, or raise OSError.

    A full disk, quota or limit takes a part of it, and Python drops the rest in silence.
    """
    raw, stream = getattr(sys.stdout, "buffer", None), sys.stdout
    if isinstance(raw, io.RawIOBase) and isinstance(stream, io.TextIOWrapper):
        writer = _UnbufferedWriter(raw)
        sys.stdout = io.TextIOWrapper(
            writer, stream.encoding, stream.errors, line_buffering=stream.line_buffering, write_through=True
        )


class _UnbufferedWriter(io.BufferedWriter):
    """Writer keeping nothing after a write."""

    def write(self, data: ReadableBuffer) -> int:
        """Write all bytes at once; returns their number."""
        count = super().write(data)
        self.flush()
        return count


def silence_grpc() -> None:
    """Keep gRPC's native lines off the terminal, such as one per attempt of a peer with a bad certificate.

    Called before gRPC is loaded; GRPC_VERBOSITY in the environment takes precedence.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def replace_unprintable() -> None:
    """Print characters missing from the terminal's encoding in ASCII: - for −, ? without a substitute."""
    codecs.register_error("fedge.in_ascii", _in_ascii)
    with suppress(AttributeError, OSError, ValueError):  # not a text stream, or closed
        sys.stdout.reconfigure(errors="fedge.in_ascii")  # type: ignore[union-attr]


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replacement for characters missing from an encoding, and the position after them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end].translate(_IN_ASCII)
    return missing.encode("ascii", "replace").decode("ascii"), error.end


def forget_unread() -> None:
    """Discard output that standard output and error cannot take, so the exit code is unaffected."""
    _forget_unread(sys.stdout)
    _forget_unread(sys.stderr)


def _forget_unread(stream: TextIO) -> None:
    """Flush a stream; if that fails, redirect its descriptor to /dev/null."""
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):  # also of a stream that the user's code replaced by None
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
