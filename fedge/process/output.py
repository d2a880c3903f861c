"""Output of clients, bounded: its prints, logs and warnings fill neither a log nor a terminal.

While a thread works for a client (`spoken_by`), its writes to standard output and error count, and so
do its log lines (`fedge.process.logs` asks `room_for`). Of one client 64 KiB a call are let through, and
1 MiB an hour; the rest is dropped where it is written, so that no memory holds it. A line of the log says how
much was left out, and whose: after the first call of which something was, and whenever that has doubled.

In a process that works for clients alone (a worker of Ray's, a ClientApp of a SuperNode) threads that a
client has started count as well, and a terminal's control sequences become escapes: it ends in a log.
Native code's writes to descriptors pass by here; `fedge node` bounds them, too.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedge.process.client_app import is_client_app
from fedge.process.escape import printable

logger = logging.getLogger(__name__)

A_CALL = 2**16  # characters, or bytes where bytes are written
AN_HOUR = 2**20
_HOUR_S = 3600.0
_RAY_WORKER = "default_worker.py"


@dataclass
class _Share:
    """Share of one client in the output of this process.

    Attributes:
        began: when the hour began.
        hour: bytes left of it.
        call: bytes left of the call that goes on.
        of_call: bytes left out of it.
        dropped: bytes left out since the log began.
        said: of which the log has spoken.
    """

    client: int
    began: float
    hour: int = AN_HOUR
    call: int = 0
    of_call: int = 0
    dropped: int = 0
    said: int = 0

    def begin(self) -> None:
        """A call begins."""
        if time.monotonic() - self.began > _HOUR_S:
            self.began, self.hour = time.monotonic(), AN_HOUR
        self.call = A_CALL

    def take(self, size: int) -> int:
        """Part of so much that may be let through; it counts."""
        with _lock:
            let = max(0, min(size, self.call, self.hour))
            self.call -= let
            self.hour -= let
            self.of_call += size - let
            self.dropped += size - let
        return let

    def words(self) -> str:
        """Line for the log after a call, empty while there is nothing new."""
        self.of_call = 0
        if self.dropped < max(1, 2 * self.said):
            return ""
        self.said = self.dropped
        return (
            f"client {self.client}: {self.dropped:,} characters of its output were left out; {A_CALL:,} of a "
            f"call and {AN_HOUR:,} of an hour are kept"
        )


_CONTROL = re.compile(r"([\n\r\t])")
_lock = threading.Lock()
_shares: dict[int, _Share] = {}
_mine = threading.local()  # .share: of this thread's client
_everybodys: _Share | None = None  # of this process's client
_at_work = 0  # calls in progress
_streams: dict[str, "_Bounded"] = {}  # those in place of sys.stdout and sys.stderr meanwhile


def _is_alone() -> bool:
    """Whether this process works for one client at a time, and nobody else."""
    return is_client_app() or (bool(sys.argv) and os.path.basename(sys.argv[0]) == _RAY_WORKER)


@contextmanager
def spoken_by(client: int) -> Iterator[None]:
    """Bound this thread's output and log, on behalf of a client (partition id)."""
    if getattr(_mine, "share", None) is not None:  # one engine calls another's guard
        yield
        return
    with _lock:
        share = _shares.setdefault(client, _Share(client, time.monotonic()))
        _enter()
    share.begin()
    _mine.share = share
    _let_all_count(share if _is_alone() else None)
    try:
        yield
    finally:
        _mine.share = None
        _let_all_count(None)
        with _lock:
            _leave()
            words = share.words()
        if words:
            logger.warning("%s", words)


def _let_all_count(share: _Share | None) -> None:
    """Count the output of unknown threads for a client."""
    global _everybodys
    _everybodys = share


def say_anew() -> None:
    """Let a log that begins now have its own lines on omissions."""
    with _lock:
        for share in _shares.values():
            share.dropped, share.said = share.of_call, 0


def room_for(size: int) -> int:
    """Part of so much output that the client at work here may still have; all of it where none is."""
    share = getattr(_mine, "share", None) or _everybodys
    return size if share is None else share.take(size)


def _enter() -> None:
    """Put bounded streams in place, for the first of calls that go on."""
    global _at_work
    _at_work += 1
    if _at_work == 1:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is not None:
                _streams[name] = _Bounded(getattr(sys, name))
                setattr(sys, name, _streams[name])


def _leave() -> None:
    """Put back the former streams, after the last; a stream that somebody else has put there stays."""
    global _at_work
    _at_work -= 1
    if _at_work == 0:
        for name, bounded in _streams.items():
            if getattr(sys, name) is bounded:
                setattr(sys, name, bounded.stream)
        _streams.clear()


class _Bounded:
    """A stream, of text or bytes, that lets output through while there is room; else it is the stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.stream)

    @property
    def buffer(self) -> "_Bounded":
        """The stream of bytes below, bounded as well."""
        return _Bounded(self.stream.buffer)

    def write(self, text: Any) -> int:
        """Write as much as there is room for; says that it was all."""
        let = room_for(len(text))
        if let:
            said = text if let == len(text) else text[:let]
            self.stream.write(said if _everybodys is None else _escaped(said))
        return len(text)

    def writelines(self, lines: Iterable[Any]) -> None:
        """Write lines."""
        for line in lines:
            self.write(line)


def _escaped(said: Any) -> Any:
    """Text, or bytes of such, in which only ends of lines and tabs are control characters."""
    if isinstance(said, str):
        return "".join(part if part in "\n\r\t" else printable(part) for part in _CONTROL.split(said))
    return _escaped(bytes(said).decode("utf-8", "replace")).encode("utf-8", "replace")
