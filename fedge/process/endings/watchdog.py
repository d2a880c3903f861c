"""Watchdog that ends a run without progress (replies, finished steps, rounds) for `guard.stall-timeout`.

Steps report their progress with `note_progress`. Without any, `refuse_stalled` raises at the run's next wait
for replies, and the run ends like any failed run. Time in which the process was stopped (Ctrl-Z) does not
count. A run that hangs elsewhere is ended by the watching thread.
"""

import faulthandler
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedge.config.registers.failing import current_user_line
from fedge.config.sections.guard import GuardConfig
from fedge.process.endings.awake_clock import awake, keeping
from fedge.process.endings.exits import refuse_interrupted

logger = logging.getLogger(__name__)

LEAST_S = 600.0  # lower bound of the computed limit: phases without clients, e.g. loading data, may take long
GRACE_S = 5.0  # after the limit, for a run to end by itself


class StallError(RuntimeError):
    """Error: no progress for too long. One line for the user."""


def stall_limit_s(guard: GuardConfig) -> float:
    """Seconds of `guard.stall-timeout`; 0 means twice `guard.client-timeout`, at least 600."""
    return guard.stall_timeout or max(LEAST_S, 2 * guard.client_timeout)


_last = awake()
_stalled = ""  # reason, once the run has stalled
_is_watching = False


def note_progress() -> None:
    """Record progress of the run; raises Interrupted if an earlier signal asking it to end was lost."""
    global _last
    _refuse_lost_signal()
    _last = awake()


def refuse_stalled() -> None:
    """Raise StallError if the watchdog has found the run stalled; Interrupted as in `note_progress`."""
    _refuse_lost_signal()
    if _stalled:
        raise StallError(_stalled)


def _refuse_lost_signal() -> None:
    """Raise Interrupted for a signal lost during the run; afterwards, trackers and report may finish."""
    if _is_watching:
        refuse_interrupted()


def _stall_reason(limit_s: float) -> str:
    location = current_user_line()
    return (
        f"stalled: no reply and no finished step for {limit_s:g} s (guard.stall-timeout); "
        f"{f'your own code is at {location}; ' if location else ''}run.log has the stacks of all threads"
    )


@contextmanager
def watching(
    limit_s: float, log: Path, give_up: Callable[[str], None], start_s: float = 0.0
) -> Iterator[None]:
    """Watch the run carried out in the body.

    Args:
        limit_s: seconds without progress after which the run has stalled.
        log: file for the stacks of all threads if the run stalls. Its modification time is updated after
            progress, for other processes to see.
        give_up: called with the reason, from the watching thread, if the run does not end by itself within a
            few seconds.
        start_s: additional seconds allowed before the first progress.
    """
    global _last, _stalled, _is_watching
    _last = awake() + start_s
    _stalled = ""
    finished = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(limit_s, log, give_up, finished), name="watchdog", daemon=True
    )
    with keeping():
        thread.start()
        _is_watching = True
        try:
            yield
        finally:
            _is_watching = False
            finished.set()
            _stalled = ""


def _watch(limit_s: float, log: Path, give_up: Callable[[str], None], finished: threading.Event) -> None:
    """Body of the watching thread."""
    global _stalled
    last_seen = _last
    while not finished.wait(min(1.0, limit_s / 4)):
        if _last != last_seen:
            last_seen = _last
            with suppress(OSError):
                os.utime(log)
        if awake() - _last > limit_s:
            _dump_stacks(log)
            _stalled = _stall_reason(limit_s)
            if not finished.wait(GRACE_S):
                give_up(_stalled)
            return


def _dump_stacks(log: Path) -> None:
    """Append the stack of every thread of this process to the log."""
    with suppress(OSError), log.open("a", encoding="utf-8") as stream:
        stream.write("the run has stalled; stacks of all threads:\n")
        stream.flush()
        faulthandler.dump_traceback(stream, all_threads=True)
