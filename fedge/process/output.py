"""Limits on clients' output, to keep prints, logs and warnings from filling a log or a terminal.

While a thread works for a client (`limit_client_output`), its writes to standard output and error are
counted, and so are its log lines (`fedge.process.logs` calls `writable_bytes`). A client may write
64 KiB per call and 1 MiB per hour; the rest is dropped at once, without being stored. The log names the
client and the amount after the first call with dropped output, and again each time the amount has doubled.

In a process that serves clients only (a Ray worker, a ClientApp of a SuperNode), threads started by a client
count as well, and terminal control sequences are escaped, as the output ends in a log. Native code's writes
to descriptors bypass this module; `fedge node` limits those, too.
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

A_CALL = 2**16  # characters, or bytes for byte streams
AN_HOUR = 2**20
_HOUR_S = 3600.0
_RAY_WORKER = "default_worker.py"


@dataclass
class _Share:
    """One client's share of this process's output.

    Attributes:
        began: start of the current hour, in monotonic seconds.
        left_this_hour: bytes left in the current hour.
        left_this_call: bytes left in the current call.
        dropped_this_call: bytes dropped in the current call.
        dropped: bytes dropped since the log began.
        reported: dropped bytes already reported in the log.
    """

    client: int
    began: float
    left_this_hour: int = AN_HOUR
    left_this_call: int = 0
    dropped_this_call: int = 0
    dropped: int = 0
    reported: int = 0

    def begin(self) -> None:
        """Start a call."""
        if time.monotonic() - self.began > _HOUR_S:
            self.began, self.left_this_hour = time.monotonic(), AN_HOUR
        self.left_this_call = A_CALL

    def take(self, size: int) -> int:
        """Number of `size` bytes that may be written; they are deducted."""
        with _lock:
            allowed = max(0, min(size, self.left_this_call, self.left_this_hour))
            self.left_this_call -= allowed
            self.left_this_hour -= allowed
            self.dropped_this_call += size - allowed
            self.dropped += size - allowed
        return allowed

    def summary(self) -> str:
        """Line for the log after a call; empty if nothing is new."""
        self.dropped_this_call = 0
        if self.dropped < max(1, 2 * self.reported):
            return ""
        self.reported = self.dropped
        return (
            f"client {self.client}: {self.dropped:,} characters of its output were left out; {A_CALL:,} per "
            f"call and {AN_HOUR:,} per hour are kept"
        )


_CONTROL = re.compile(r"([\n\r\t])")
_lock = threading.Lock()
_shares: dict[int, _Share] = {}
_thread_state = threading.local()  # .share: share of this thread's client
_process_share: _Share | None = None  # share of this process's client
_calls_in_progress = 0
_streams: dict[str, "_Bounded"] = {}  # replacements of sys.stdout and sys.stderr


def _serves_one_client() -> bool:
    """Whether this process serves one client at a time and does nothing else."""
    return is_client_app() or (bool(sys.argv) and os.path.basename(sys.argv[0]) == _RAY_WORKER)


@contextmanager
def limit_client_output(client: int) -> Iterator[None]:
    """Context limiting this thread's output and log on behalf of a client (partition id)."""
    if getattr(_thread_state, "share", None) is not None:  # nested guards of two engines
        yield
        return
    with _lock:
        share = _shares.setdefault(client, _Share(client, time.monotonic()))
        _begin_call()
    share.begin()
    _thread_state.share = share
    _charge_unassigned(share if _serves_one_client() else None)
    try:
        yield
    finally:
        _thread_state.share = None
        _charge_unassigned(None)
        with _lock:
            _end_call()
            summary = share.summary()
        if summary:
            logger.warning("%s", summary)


def _charge_unassigned(share: _Share | None) -> None:
    """Charge a client with the output of threads without a client."""
    global _process_share
    _process_share = share


def restart_counts() -> None:
    """Restart the counts of dropped output for a new log."""
    with _lock:
        for share in _shares.values():
            share.dropped, share.reported = share.dropped_this_call, 0


def writable_bytes(size: int) -> int:
    """Number of `size` bytes that the current client may still write; all of them without a client."""
    share = getattr(_thread_state, "share", None) or _process_share
    return size if share is None else share.take(size)


def _begin_call() -> None:
    """Install limited streams at the first of concurrent calls."""
    global _calls_in_progress
    _calls_in_progress += 1
    if _calls_in_progress == 1:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is not None:
                _streams[name] = _Bounded(getattr(sys, name))
                setattr(sys, name, _streams[name])


def _end_call() -> None:
    """Restore the streams after the last call, unless others have replaced them."""
    global _calls_in_progress
    _calls_in_progress -= 1
    if _calls_in_progress == 0:
        for name, bounded in _streams.items():
            if getattr(sys, name) is bounded:
                setattr(sys, name, bounded.stream)
        _streams.clear()


class _Bounded:
    """Text or byte stream that drops output beyond the limit, and passes on everything else."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.stream)

    @property
    def buffer(self) -> "_Bounded":
        """Underlying byte stream, limited as well."""
        return _Bounded(self.stream.buffer)

    def write(self, text: Any) -> int:
        """Write up to the limit; reports all as written."""
        allowed = writable_bytes(len(text))
        if allowed:
            allowed_text = text if allowed == len(text) else text[:allowed]
            self.stream.write(allowed_text if _process_share is None else _escaped(allowed_text))
        return len(text)

    def writelines(self, lines: Iterable[Any]) -> None:
        """Write lines."""
        for line in lines:
            self.write(line)


def _escaped(text: Any) -> Any:
    """Text, or encoded text, with control characters escaped except line ends and tabs."""
    if isinstance(text, str):
        return "".join(part if part in "\n\r\t" else printable(part) for part in _CONTROL.split(text))
    return _escaped(bytes(text).decode("utf-8", "replace")).encode("utf-8", "replace")
