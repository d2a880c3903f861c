"""Ends a run in which nothing happens any more: no reply, no phase done, no round, for `guard.stall-timeout`.

Steps note their progress with `note_progress`. When none comes, the run is told at its next wait for
replies (`refuse_stalled` raises there) and ends like any failed run. Time in which the process was stopped
(Ctrl-Z) does not count. A run that does not even wait, because
it hangs somewhere else, is ended from outside by the watching thread.
"""

import faulthandler
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedge.config.sections.guard import GuardConfig
from fedge.process.awake import awake, keeping

logger = logging.getLogger(__name__)

LEAST_S = 600.0  # of the computed limit: phases without clients (loading data) take their time
GRACE_S = 5.0  # from the limit on, for a run noticing by itself


class StallError(RuntimeError):
    """Nothing has happened for too long. One line for the user."""


def stall_limit_s(guard: GuardConfig) -> float:
    """The seconds of `guard.stall-timeout`; 0 stands for twice guard.client-timeout, at least 600."""
    return guard.stall_timeout or max(LEAST_S, 2 * guard.client_timeout)


_last = awake()
_stalled = ""  # the reason, once the run has


def note_progress() -> None:
    """Say that the run goes on."""
    global _last
    _last = awake()


def refuse_stalled() -> None:
    """Raise StallError when the watching thread has found that there was no progress for too long."""
    if _stalled:
        raise StallError(_stalled)


def _reason(limit_s: float) -> str:
    return (
        f"stalled: no reply and no finished step for {limit_s:g} s (guard.stall-timeout); "
        f"run.log has what every thread was doing"
    )


@contextmanager
def watching(
    limit_s: float, log: Path, give_up: Callable[[str], None], start_s: float = 0.0
) -> Iterator[None]:
    """Watch the run that is carried out inside.

    Args:
        limit_s: seconds without progress after which it has stalled.
        log: gets all threads' stacks when it has. Its time stamp is set whenever there was progress, so
            that other processes see it too.
        give_up: called with the reason, from the watching thread, when the run does not end by itself
            within a few seconds.
        start_s: seconds that the first sign of progress may take in addition.
    """
    global _last, _stalled
    _last = awake() + start_s
    _stalled = ""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(limit_s, log, give_up, over), name="watchdog", daemon=True)
    with keeping():
        thread.start()
        try:
            yield
        finally:
            over.set()
            _stalled = ""


def _watch(limit_s: float, log: Path, give_up: Callable[[str], None], over: threading.Event) -> None:
    """Do the watching thread's work."""
    global _stalled
    seen = _last
    while not over.wait(min(1.0, limit_s / 4)):
        if _last != seen:
            seen = _last
            with suppress(OSError):
                os.utime(log)
        if awake() - _last > limit_s:
            _dump_stacks(log)
            _stalled = _reason(limit_s)
            if not over.wait(GRACE_S):
                give_up(_stalled)
            return


def _dump_stacks(log: Path) -> None:
    """Append the stack of every thread of this process."""
    with suppress(OSError), log.open("a", encoding="utf-8") as stream:
        stream.write("the run has stalled; what every thread is doing:\n")
        stream.flush()
        faulthandler.dump_traceback(stream, all_threads=True)
