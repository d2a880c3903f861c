"""Message during long checks before a run, in which the user's code may hang."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fedge.config.registers.failing import current_user_line
from fedge.process.escape import printable

_AFTER_S = 60.0  # trials of user code take seconds, or tens of seconds on a busy machine


@contextmanager
def reporting_slow_code() -> Iterator[None]:
    """Context, or decorator, in which stderr shows once which line of the user's code has not returned."""
    finished = threading.Event()
    threading.Thread(target=_report_line, args=(finished, _AFTER_S), name="patience", daemon=True).start()
    try:
        yield
    finally:
        finished.set()


def _report_line(finished: threading.Event, after_s: float) -> None:
    """Print once which line of the user's code runs, checking every `after_s` seconds until `finished`."""
    waited_s = 0.0
    while not finished.wait(after_s):
        waited_s += after_s
        location = current_user_line()
        if location:
            line = (
                f"checks before the run have taken {waited_s:g} s: your own code is at {location}; "
                "Ctrl-C ends it"
            )
            with suppress(OSError, ValueError):  # the terminal may be closed
                print(printable(line), file=sys.stderr, flush=True)
            return
