"""Message during long checks before a run, in which the user's code may hang."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fedge.config.registers.failing import standing
from fedge.process.escape import printable

_AFTER_S = 60.0  # trials of user code take seconds, or tens of seconds on a busy machine


@contextmanager
def reporting_slow_code() -> Iterator[None]:
    """Context, or decorator, in which stderr shows once which line of the user's code has not returned."""
    over = threading.Event()
    threading.Thread(target=_report_line, args=(over, _AFTER_S), name="patience", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _report_line(over: threading.Event, after_s: float) -> None:
    """Print once which line of the user's code is running, checking every `after_s` seconds until `over`."""
    waited_s = 0.0
    while not over.wait(after_s):
        waited_s += after_s
        where = standing()
        if where:
            line = (
                f"checks before the run have taken {waited_s:g} s: your own code is at {where}; "
                "Ctrl-C ends it"
            )
            with suppress(OSError, ValueError):  # the terminal may be closed
                print(printable(line), file=sys.stderr, flush=True)
            return
