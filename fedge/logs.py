"""Where output goes: progress to the terminal, everything else to the run's run.log.

Flower, Ray and libraries write to the terminal in three ways: through loggers, through ``warnings`` and, from
native code, straight to file descriptors 1 and 2. All three are turned to run.log while a run goes on.
"""

import io
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import TextIO

_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


def log_to(path: Path) -> logging.Handler:
    """Send all loggers of this process, and warnings, to `path` (appended line by line).

    Flower's logger writes to the terminal by itself; its own handlers are taken off.
    """
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    flower = logging.getLogger("flwr")
    flower.handlers.clear()
    flower.setLevel(logging.WARNING)
    flower.propagate = True
    logging.captureWarnings(True)
    return handler


def stop_logging_to(handler: logging.Handler) -> None:
    """Take back `log_to`."""
    logging.getLogger().removeHandler(handler)
    handler.close()


def divert_descriptors(path: Path) -> TextIO:
    """Point this process's standard output and error at `path` and return a stream to the old output.

    Called once, in a process that ends with the run (Flower's simulation process).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    terminal = io.TextIOWrapper(
        os.fdopen(os.dup(1), "wb"), encoding="utf-8", errors="replace", write_through=True
    )
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return terminal


_worker_log: str | None = None


def log_worker_to(path: str) -> None:
    """In a worker process: send loggers and warnings to the run's log, once per run."""
    global _worker_log
    if _worker_log == path or not Path(path).parent.is_dir():
        return
    _worker_log = path
    warnings.simplefilter("default")
    log_to(Path(path))
