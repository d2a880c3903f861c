"""memray in one process of a profiled run, from the import of Fedge to the process's end.

Switched on by an environment variable, because Flower and Ray start the processes. Nothing is imported before
the capture begins, so later imports are captured.
"""

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = "FEDGE_CAPTURE"  # environment variable: folder of all captures

_tracker: Any = None


def role_of_this_process(argv: Sequence[str]) -> str:
    """Role of a process, from its command line: "server", "worker", or "" if it only waits for others."""
    program = Path(argv[0]).name if argv else ""
    if program == "default_worker.py":  # Ray's
        return "worker"
    from fedge.config.registers.engines import engine_argument  # a small module without library imports

    engine = engine_argument(argv)
    only_waits = program == "flwr" or (engine is not None and engine.on_ray)
    return "" if only_waits else "server"


def begin_capture() -> None:
    """Start the capture of this process if it has a role; it ends at exit at the latest."""
    global _tracker
    role = role_of_this_process(sys.argv)
    if _tracker is not None or not role:
        return
    import memray

    path = Path(os.environ[FOLDER]) / f"{role}-{os.getpid()}.bin"
    _tracker = memray.Tracker(
        destination=memray.FileDestination(path, overwrite=True),
        file_format=memray.FileFormat.AGGREGATED_ALLOCATIONS,
    )
    # memray loses the frames above its starting frame once they return; so it starts on another thread
    starter = threading.Thread(target=_tracker.__enter__)
    starter.start()
    starter.join()
    atexit.register(end)


def is_captured() -> bool:
    """Whether this process is captured."""
    return _tracker is not None


def end() -> None:
    """End the capture of this process, if there is one, which writes it."""
    global _tracker
    tracker, _tracker = _tracker, None
    if tracker is not None:
        tracker.__exit__(None, None, None)
