"""memray in one process of a profiled run: from the moment that Fedge is loaded until it is ended.

Switched on by the environment, because Flower and Ray start the processes. Loads nothing before it begins:
later imports are to be seen.
"""

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = "FEDGE_CAPTURE"  # variable of the environment: the folder of all captures

_tracker: Any = None


def role_of_this_process(argv: Sequence[str]) -> str:
    """Role: "server" or "worker"; empty for a process that only waits for the others."""
    program = Path(argv[0]).name if argv else ""
    if program == "default_worker.py":  # Ray's
        return "worker"
    from fedge.config.engines import named_in  # a small file without imports of libraries

    named = named_in(argv)
    waits = program == "flwr" or (named is not None and named.on_ray)
    return "" if waits else "server"


def begin() -> None:
    """Start the capture of this process, if it is to have one; it ends with the process at the latest."""
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
    # memray loses the frames above the one in which it begins, once they return: it begins on another thread
    starter = threading.Thread(target=_tracker.__enter__)
    starter.start()
    starter.join()
    atexit.register(end)


def is_on() -> bool:
    """Whether this process is captured."""
    return _tracker is not None


def end() -> None:
    """End the capture of this process, if there is one, which writes it."""
    global _tracker
    tracker, _tracker = _tracker, None
    if tracker is not None:
        tracker.__exit__(None, None, None)
