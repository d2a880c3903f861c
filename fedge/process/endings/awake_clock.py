"""Monotonic clock that stands still while the process is stopped.

Ctrl-Z and SIGSTOP can stop a process for any length of time. A wait with a limit in seconds must not count
that time as silence, because nothing could have arrived.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

STOPPED_S = 2.5  # a longer gap between readings means that the process was stopped

_lock = threading.Lock()
_keepers = 0
_last_reading = 0.0  # monotonic seconds
_stopped = 0.0  # seconds since the process began


def awake() -> float:
    """Seconds from an arbitrary origin, like time.monotonic, excluding time in which the process was stopped.

    Stops are detected only while a thread keeps the clock (`keeping`).
    """
    global _last_reading, _stopped
    with _lock:
        now = time.monotonic()
        if _keepers and now - _last_reading > STOPPED_S:
            _stopped += now - _last_reading
        _last_reading = now
        return now - _stopped


@contextmanager
def keeping() -> Iterator[None]:
    """Context in which some thread must call `awake` at least once per second."""
    global _keepers, _last_reading
    with _lock:
        _keepers += 1
        _last_reading = time.monotonic() if _keepers == 1 else _last_reading
    try:
        yield
    finally:
        with _lock:
            _keepers -= 1
