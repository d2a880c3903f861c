"""Ctrl-C while the command line is loading: the process ends at once, without a traceback.

The handler is installed when this module is imported, because nothing else can precede the imports of
`fedge.cli`. Nothing has been started or written by then.
"""

import os
import signal
import threading
from types import FrameType

from fedge.process.endings.exits import Interrupted


def _leave(signum: int, _: FrameType | None) -> None:
    os._exit(Interrupted(signum).exit_code)


def _replace(handler: object, replacement: object) -> None:
    """Replace a handler of SIGINT if it is still installed; signals ignored from outside stay ignored."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is handler:
        signal.signal(signal.SIGINT, replacement)  # type: ignore[arg-type]


def end_of_loading() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    _replace(_leave, replacement=signal.default_int_handler)


_replace(signal.default_int_handler, replacement=_leave)
