"""A clock that stands still while the process is stopped.

Ctrl-Z and SIGSTOP stop a process for as long as somebody likes. A wait with a limit of seconds
must not take that for silence: nothing could have come.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

STOPPED_S = 2.5  # a clock read every second, but not for so long: nothing ran meanwhile

_lock = threading.Lock()
_keepers = 0
_looked = 0.0  # monotonic seconds
_stopped = 0.0  # seconds, since the process began


def awake() -> float:
    """Seconds from an unknown beginning on, as time.monotonic does, without those spent stopped.

    They are found while somebody keeps the clock (`keeping`); otherwise it goes on.
    """
    global _looked, _stopped
    with _lock:
        now = time.monotonic()
        if _keepers and now - _looked > STOPPED_S:
            _stopped += now - _looked
        _looked = now
        return now - _stopped


@contextmanager
def keeping() -> Iterator[None]:
    """Promise that a thread calls `awake` at least once a second while inside."""
    global _keepers, _looked
    with _lock:
        _keepers += 1
        _looked = time.monotonic() if _keepers == 1 else _looked
    try:
        yield
    finally:
        with _lock:
            _keepers -= 1
