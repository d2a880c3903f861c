"""Destinations of output: progress on the terminal, everything else in run.log.

Flower, Ray and libraries write to the terminal in three ways: through loggers, through ``warnings`` and, from
native code, directly to file descriptors 1 and 2. All three are redirected to run.log during a run. Records
of loggers and warnings are made printable and limited in length, and a client's records in total
(`fedge.process.output`).
"""

import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from fedge.process.escape import printable
from fedge.process.output import restart_counts, writable_bytes
from fedge.process.streams import forget_unread, open_missing_streams

_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
_LONGEST = 2**16  # characters of a record
_ON_FAILURES = {("raybackend", "process_message"), ("vce_api", "worker")}  # in Flower's simulation
_MOST_FAILURES = 20  # reasons for client failures whose traceback is kept


def _is_from_client(record: logging.LogRecord) -> bool:
    """Whether Flower's engine logged a record about a client's failure."""
    return record.name == "flwr" and (record.module, record.funcName) in _ON_FAILURES


class _RunLog(logging.FileHandler):
    """Handler of one run.log, with the replaced handlers and levels."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")
        self.setFormatter(logging.Formatter(_FORMAT))
        flower = logging.getLogger("flwr")
        self.root_level = logging.getLogger().level
        self.flower = (flower.handlers[:], flower.level, flower.propagate)
        self.error: OSError | None = None
        self.engine_error = self.client_error = ""
        self._failures: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, and keep Flower's errors for `first_engine_error`."""
        if record.name == "flwr" and record.levelno >= logging.ERROR:
            if _is_from_client(record):
                self.client_error = _error_message(record.getMessage())
            elif not self.engine_error:
                self.engine_error = _error_message(record.getMessage())
        if self._is_repetition(record):
            return
        try:
            text = _shortened(self.format(record))
            allowed = writable_bytes(len(text))
            if allowed and self.stream is not None:
                self.stream.write(_without_control_sequences(text[:allowed]) + self.terminator)
                self.flush()
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    def _is_repetition(self, record: logging.LogRecord) -> bool:
        """Whether a record of Flower's engine about a client's failure adds nothing new.

        Each failure comes with three records, the last of which, a traceback, includes the others. Fedge
        reports each failure in one line, so the first traceback for a reason is enough to find the place in
        the user's code.
        """
        if not _is_from_client(record):
            return False
        text = record.getMessage()
        if not text.startswith("Traceback"):
            return True
        reason = text.strip().splitlines()[-1]
        if reason in self._failures or len(self._failures) == _MOST_FAILURES:
            return True
        self._failures.add(reason)
        return False

    def handleError(self, record: logging.LogRecord) -> None:
        """Keep the first write error, for `refuse_failed_log`, instead of printing a traceback per record."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self.error = self.error or error
        else:
            super().handleError(record)

    def close(self) -> None:
        """Close the file, even on a full disk."""
        with suppress(OSError):
            super().close()


def _shortened(text: str) -> str:
    """A record, or its two ends if it is too long."""
    if len(text) <= _LONGEST:
        return text
    half, omitted = _LONGEST // 2, len(text) - _LONGEST
    return f"{text[:half]} … {omitted:,} characters left out … {text[-half:]}"


def _without_control_sequences(text: str) -> str:
    """Lines of a log without terminal control sequences."""
    return "\n".join(map(printable, text.expandtabs().split("\n")))


def _error_message(text: str) -> str:
    """Message of an error of Flower's engine in one line, from a sentence or a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["unknown reason"]
    if lines[0].startswith("Traceback"):  # its last line is "ValueError: message"
        lines = [lines[-1].partition(": ")[2] or lines[-1]]
    return " ".join(" ".join(lines).split()).removeprefix("An exception occured!! ")[:300]


def log_to(path: Path) -> logging.Handler:
    """Redirect all loggers of this process, and warnings, to `path`, which is appended to.

    The handlers of Flower's logger, which write to the terminal, are removed.
    """
    handler = _RunLog(path)
    restart_counts()
    _logged_by_flower.clear()
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    flower = logging.getLogger("flwr")
    flower.handlers.clear()
    flower.setLevel(logging.WARNING)
    flower.propagate = True
    logging.getLogger("httpx").setLevel(logging.WARNING)  # used by newer Flower versions: one line per call
    logging.captureWarnings(True)
    return handler


def stop_logging_to(handler: logging.Handler) -> None:
    """Undo `log_to`: restore loggers and warnings."""
    assert isinstance(handler, _RunLog)
    root = logging.getLogger()
    root.removeHandler(handler)
    root.setLevel(handler.root_level)
    flower = logging.getLogger("flwr")
    flower.handlers[:], level, flower.propagate = handler.flower
    flower.setLevel(level)
    logging.captureWarnings(False)
    with suppress(OSError):  # a full disk has been reported
        handler.close()


def refuse_failed_log() -> None:
    """Raise OSError if run.log could not be written, because a run must not continue without its warnings."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _RunLog) and handler.error:
            raise OSError(handler.error.errno, handler.error.strerror, handler.baseFilename)


class _EarlyErrors(logging.Handler):
    """Handler that keeps Flower's first error before `log_to` replaces it."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record if it is the first error."""
        if record.levelno >= logging.ERROR and not self.first:
            type(self).first = _error_message(record.getMessage())


def keep_early_engine_errors() -> None:
    """Keep Flower's errors from before the run's log for `first_engine_error`, off the terminal.

    For a process whose engine may fail early in another thread; the run then reports the error in one line.
    """
    logging.getLogger("flwr").handlers[:] = [_EarlyErrors()]


@contextmanager
def quiet_flower_log() -> Iterator[None]:
    """Context, or decorator, in which Flower's logger passes on only warnings and errors, each once.

    For checks before a run's log is open: a strategy being tested would print its sampling on the terminal,
    and its warnings once per trial.
    """
    flower = logging.getLogger("flwr")
    level = flower.level
    flower.setLevel(max(level, logging.WARNING))
    try:
        with _each_once(set()):
            yield
    finally:
        flower.setLevel(level)


_logged_by_flower: set[str] = set()


@contextmanager
def deduplicate_flower_log() -> Iterator[None]:
    """Context in which Flower's logger repeats no record of an earlier such context with the same log.

    A strategy is constructed for every leaf, and warns about its arguments each time.
    """
    with _each_once(_logged_by_flower):
        yield


@contextmanager
def _each_once(logged: set[str]) -> Iterator[None]:
    """Context in which Flower's logger drops records with texts in `logged`, and adds the texts of others."""

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        new = text not in logged
        logged.add(text)
        return new

    flower = logging.getLogger("flwr")
    flower.addFilter(is_new)
    try:
        yield
    finally:
        flower.removeFilter(is_new)


def first_engine_error() -> str:
    """First error logged by Flower in this run, in one line; empty without one.

    Errors from before the run's log take precedence, because later ones only report a failure. A client's
    failure does not end the engine, so the newest one is used only if nothing else was logged.
    """
    logs = [handler for handler in logging.getLogger().handlers if isinstance(handler, _RunLog)]
    errors = [log.engine_error for log in logs] + [log.client_error for log in logs]
    return _EarlyErrors.first or next(filter(None, errors), "")


def divert_descriptors(path: Path) -> TextIO:
    """Redirect this process's standard output and error to `path`; returns a stream to the old output.

    Called once, in a process ending with the run (Flower's simulation process). If the old output is
    /dev/null and Flower forwards output to the starter of the run (``flwr run --stream``), the stream is
    Python's own, and run.log has its lines as well.
    """
    open_missing_streams()
    forget_unread()
    if "write" in vars(sys.stdout) and os.path.samestat(os.fstat(1), os.stat(os.devnull)):
        _redirect_output(path)
        return sys.stdout
    encoding = sys.stdout.encoding or "utf-8"
    terminal = io.TextIOWrapper(
        os.fdopen(os.dup(1), "wb"), encoding=encoding, errors="replace", write_through=True
    )
    _redirect_output(path)
    return terminal


def _redirect_output(path: Path) -> None:
    """Make descriptors 1 and 2 append to a file."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


_worker_log: tuple[str, logging.Handler] | None = None


def log_worker_to(path: str) -> None:
    """Redirect a worker process's loggers and warnings to the run's log, once per run.

    The log of an earlier run is released.
    """
    global _worker_log
    if (_worker_log and _worker_log[0] == path) or not Path(path).parent.is_dir():
        return
    if _worker_log:
        stop_logging_to(_worker_log[1])
    warnings.simplefilter("default")
    _worker_log = (path, log_to(Path(path)))
