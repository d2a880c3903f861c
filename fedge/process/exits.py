"""How a process ends: exit codes, signals that become exceptions, and an end that nothing can hold up."""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

COMPLETED, RUNNING, PARTIAL, FAILED, STALLED = 0, 1, 3, 4, 5
UNREAD = 141  # 128 + SIGPIPE: nobody reads a command's output
BY_STATUS = {"running": RUNNING, "completed": COMPLETED, "partial": PARTIAL, "failed": FAILED}
LEAVE_S = 15.0  # for the clean-up of a finished run
LEAVE_STALLED_S = 3.0  # the same where waiting has been in vain already
REPORT_S = 600.0  # for a report: seconds of CPU, but minutes on a busy machine

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")  # a closed terminal sends the last


class Interrupted(KeyboardInterrupt):
    """A signal asks the process to end."""

    def __init__(self, signum: int = signal.SIGINT) -> None:
        """Remember which signal it was."""
        super().__init__(signum)
        self.signum = signal.Signals(signum)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells have it."""
        return 128 + self.signum

    @property
    def reason(self) -> str:
        """Why a run ended, for its manifest."""
        return interruption(self.signum)


def interruption(signum: int) -> str:
    """The manifest's reason of a run that a signal ended: Ctrl-C is "interrupted"."""
    return "interrupted" if signum == signal.SIGINT else f"interrupted ({signal.Signals(signum).name})"


def interrupted_by(error: BaseException) -> Interrupted | None:
    """The interruption that an exception is, if any; Python's own KeyboardInterrupt is SIGINT."""
    if isinstance(error, Interrupted):
        return error
    return Interrupted() if isinstance(error, KeyboardInterrupt) else None


@contextmanager
def signals_as_exceptions(leave_s: float = LEAVE_S) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP raise Interrupted in the main thread.

    The first one also gives the process `leave_s` seconds to end, in any case. A signal that is
    ignored from outside (nohup) stays ignored. Outside the main thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, _: FrameType | None) -> None:
        leave_within(leave_s, 128 + signum)
        raise Interrupted(signum)

    before: dict[int, Any] = {}
    for name in _ENDING:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_write_end: Callable[[int], None] | None = None


@contextmanager
def ending_on_signal(write_end: Callable[[int], None]) -> Iterator[None]:
    """While inside, `end_on_signal` calls `write_end` with the signal's number.

    For processes whose signals belong to another program, which may kill this one moments later.
    """
    global _write_end
    _write_end = write_end
    try:
        yield
    finally:
        _write_end = None


def end_on_signal(signum: int) -> None:
    """Let the run that is carried out, if any, write that a signal ends it."""
    if _write_end is not None:
        _write_end(signum)


_leaving = threading.Lock()


_at_rest = threading.Event()  # unset while this process has work to finish
_at_rest.set()
_unfinished = ""


@contextmanager
def finishing(otherwise: str) -> Iterator[None]:
    """While inside, a patient `leave_within` waits, for `REPORT_S` seconds at most.

    Where that or an impatient one is over before the body, `otherwise` is the process's last line on stderr.
    """
    global _unfinished
    _unfinished = otherwise
    _at_rest.clear()
    try:
        yield
    finally:
        _at_rest.set()


def leave_within(seconds: float, exit_code: int, patient: bool = False) -> None:
    """Let this process end in at most `seconds` seconds, with `exit_code` if it does not end by itself.

    The first call counts. For processes that a run has to itself: threads that hang (a client's, Flower's
    wait for a worker) keep a process alive, and nothing else ends them. If `patient`, work that is being
    finished then (`finishing`) is waited for, and has as many seconds again to say so.
    """

    def leave() -> None:
        if patient and not _at_rest.is_set():
            _at_rest.wait(REPORT_S)
            time.sleep(seconds)
        if not _at_rest.is_set():
            with suppress(OSError, ValueError, AttributeError):
                print(_unfinished, file=sys.stderr)
        leave_now(exit_code)

    if _leaving.acquire(blocking=False):
        timer = threading.Timer(seconds, leave)
        timer.daemon = True
        timer.start()


@contextmanager
def leaving_if_stuck(seconds: float) -> Iterator[None]:
    """End this process, with exit code 1 and all tracebacks, if the body takes more than `seconds` seconds.

    For calls of libraries that hold Python's lock while they wait: no thread of Python's could end them.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def leave_now(exit_code: int) -> NoReturn:
    """End this process, even amid its threads' work."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(exit_code)
