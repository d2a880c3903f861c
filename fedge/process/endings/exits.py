"""End of a process: exit codes, signals as exceptions, and exits nothing can delay."""

import faulthandler
import math
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
UNREAD = 141  # 128 + SIGPIPE (13): the output's reader is gone
BY_STATUS = {"running": RUNNING, "completed": COMPLETED, "partial": PARTIAL, "failed": FAILED}
LEAVE_S = 15.0  # for the clean-up of a finished run
LEAVE_STALLED_S = 3.0  # for the clean-up after a stall
REPORT_S = 600.0  # for the report: seconds of CPU, minutes on a busy machine
_UNREAD_S = 1.0  # for output that nobody reads
_SAME_S = 0.5  # two signals within this time are one, e.g. from a terminal and a parent

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")  # SIGHUP: the terminal was closed


class Interrupted(KeyboardInterrupt):
    """Signal asking the process to end."""

    def __init__(self, signum: int = signal.SIGINT) -> None:
        """Interruption by a signal."""
        super().__init__(signum)
        self.signum = signal.Signals(signum)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, the shell convention."""
        return 128 + self.signum

    @property
    def reason(self) -> str:
        """Reason for the manifest."""
        return interruption(self.signum)


def interruption(signum: int) -> str:
    """Reason for the manifest of a run ended by a signal: Ctrl-C is "interrupted"."""
    return "interrupted" if signum == signal.SIGINT else f"interrupted ({signal.Signals(signum).name})"


def find_interruption(error: BaseException) -> Interrupted | None:
    """The interruption behind an exception, or the exception itself if it is one; None for others.

    A plain KeyboardInterrupt counts as SIGINT. A signal during a library's clean-up becomes another error:
    while `threading.Condition.wait` reacquires its lock, a RuntimeError about a lock not held.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Interrupted):
            return cause
        if isinstance(cause, KeyboardInterrupt):
            return Interrupted()
        cause = cause.__context__
    return None


@contextmanager
def interruptions() -> Iterator[None]:
    """Context that raises Interrupted for every error resulting from an interruption."""
    try:
        yield
    except Exception as error:
        interrupted = find_interruption(error)
        if interrupted is None:
            raise
        raise interrupted from error


class _Signals:
    """Signals received by this process so far, if they are raised as exceptions."""

    first = 0  # number of the first signal; 0 for none
    at_s = -math.inf  # when the last one was raised
    are_over = False  # whether the process is already ending because of a signal; later ones change nothing
    leave_s: float | None = None  # seconds that the process then has to end; None: not raised here


@contextmanager
def signals_as_exceptions(leave_s: float = LEAVE_S, to_the_end: bool = False) -> Iterator[None]:
    """Raise Interrupted in the main thread on SIGINT, SIGTERM and SIGHUP.

    The first signal also gives the process `leave_s` seconds to end, after which it is forced. Only the first
    one counts: a later signal of another kind raises the same exception, and one following at once is the
    same request, sent twice. Signals ignored from outside (nohup) stay ignored. No effect outside the main
    thread.

    Args:
        leave_s: seconds until the process is forced to end.
        to_the_end: whether the process ends after the context; if by a signal, later ones are ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, _: FrameType | None) -> None:
        if _Signals.are_over or (_Signals.first and time.monotonic() - _Signals.at_s < _SAME_S):
            return
        number = _first_signal(signum)
        _Signals.at_s = time.monotonic()
        raise Interrupted(number)

    handlers: dict[int, Any] = {}
    previous_leave_s, _Signals.leave_s = _Signals.leave_s, leave_s
    for number in _signal_numbers():
        if signal.getsignal(number) != signal.SIG_IGN:
            handlers[number] = signal.signal(number, interrupt)
    report_dropped = sys.unraisablehook

    def report(dropped: "sys.UnraisableHookArgs") -> None:
        is_signal = isinstance(dropped.exc_value, Interrupted)  # refuse_interrupted raises it again
        if not is_signal:
            report_dropped(dropped)

    sys.unraisablehook = report
    try:
        with interruptions():
            yield
    finally:
        _Signals.are_over = to_the_end and _Signals.first > 0
        if not _Signals.are_over:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            sys.unraisablehook = report_dropped
            _Signals.leave_s = previous_leave_s
            if previous_leave_s is None:
                _Signals.first, _Signals.at_s = 0, -math.inf


def _signal_numbers() -> list[int]:
    """Numbers of the signals asking a process to end, as far as this system has them."""
    return [number for name in _ENDING if (number := getattr(signal, name, None)) is not None]


def _first_signal(signum: int) -> int:
    """The signal that counts, this one or an earlier one; from then on, the time to end is limited."""
    if _Signals.leave_s is not None:
        _Signals.first = _Signals.first or signum
        leave_within(_Signals.leave_s, 128 + _Signals.first)
    return _Signals.first or signum


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Context that defers signals to its end, so no folder, manifest or end is left half written.

    Only for brief work. A signal that would end the process without an exception still does. No effect
    outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[int] = []

    def defer(signum: int, _: FrameType | None) -> None:
        deferred.append(_first_signal(signum))

    handlers: dict[int, Any] = {}
    for number in _signal_numbers():
        if callable(signal.getsignal(number)):
            handlers[number] = signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if deferred:
            signal.raise_signal(deferred[0])


def refuse_interrupted() -> None:
    """Raise Interrupted in the main thread if a signal was raised earlier but lost.

    A bare `except:` of a library or the user drops it, and so does Python in a finaliser. Without this check,
    the run would continue until it is forced to end in the middle of a step.
    """
    if _Signals.first and threading.current_thread() is threading.main_thread():
        raise Interrupted(_Signals.first)


_write_end: Callable[[int], None] | None = None


@contextmanager
def ending_on_signal(write_end: Callable[[int], None]) -> Iterator[None]:
    """Context in which `end_on_signal` calls `write_end` with the signal's number.

    For processes whose signals are handled by another program, which may kill them moments later.
    """
    global _write_end
    _write_end = write_end
    try:
        yield
    finally:
        _write_end = None


def end_on_signal(signum: int) -> None:
    """Record the end of the run in progress, if any, by a signal."""
    if _write_end is not None:
        _write_end(signum)


_leaving = {True: threading.Lock(), False: threading.Lock()}  # by patience


_idle = threading.Event()  # unset while this process has work to finish
_idle.set()
_unfinished = ""


@contextmanager
def finishing(otherwise: str) -> Iterator[None]:
    """Context that a patient `leave_within` waits for, up to `REPORT_S` seconds.

    If the process is forced to leave before the body is done, `otherwise` is its last line on stderr.
    """
    global _unfinished
    _unfinished = otherwise
    _idle.clear()
    try:
        yield
    finally:
        _idle.set()


def leave_within(seconds: float, exit_code: int, patient: bool = False) -> None:
    """Force the end of this process after `seconds` seconds, with `exit_code`, unless it ends by itself.

    Only the first call counts, and the first that is not patient. For processes that belong to a run: hanging
    threads (a client's, or Flower's, waiting for a worker) would keep them alive. If `patient`, work in
    progress (`finishing`) is waited for, plus `seconds` seconds, and so is the reader of the output.
    """

    def leave() -> None:
        if patient and not _idle.is_set():
            _idle.wait(REPORT_S)
            time.sleep(seconds)
        leave_now(exit_code, "" if _idle.is_set() else _unfinished, math.inf if patient else _UNREAD_S)

    if _leaving[patient].acquire(blocking=False):
        timer = threading.Timer(seconds, leave)
        timer.daemon = True
        timer.start()


@contextmanager
def leaving_if_stuck(seconds: float) -> Iterator[None]:
    """End this process with exit code 1 and all tracebacks if the body takes more than `seconds` seconds.

    For library calls that hold the interpreter lock while waiting, which no Python thread can end.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def leave_now(exit_code: int, last_line: str = "", unread_s: float = _UNREAD_S) -> NoReturn:
    """End this process at once, even while its threads are working.

    Args:
        exit_code: its exit code.
        last_line: printed on stderr; empty for none.
        unread_s: seconds that the reader of the output, as a pager, may take; then the rest is dropped.
    """
    try:
        writer = threading.Thread(target=_write_rest, args=(last_line,), daemon=True)
        writer.start()
        writer.join(unread_s if math.isfinite(unread_s) else None)
    except RuntimeError:  # no thread can be started any more
        _write_rest(last_line)
    finally:
        os._exit(exit_code)


def _write_rest(last_line: str) -> None:
    """Write a last line and all kept output; waits for as long as a pipe is full."""
    if last_line:
        with suppress(OSError, ValueError, AttributeError):
            print(last_line, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
