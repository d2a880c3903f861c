"""State of Flower's simulation process: whether its engine has stopped or was interrupted.

Flower reports neither to its ServerApp. The engine (main thread) may crash while the ServerApp (another
thread) waits forever for replies. On Ctrl-C, `flwr run` of Flower 1.25 kills this process after 0.25 s, so
the signal handler must write the last entries of the manifest. Private names of Flower are used if present;
without them, a run still ends at its time limits.
"""

import signal
import sys
import threading
from types import FrameType
from typing import Any

from fedge.engine.federation import federation_of_this_process
from fedge.process.endings.exits import end_on_signal, leave_now
from fedge.process.endings.parent import follow_parent
from fedge.process.endings.reaper import start_reaper
from fedge.process.lent_output import borrow_output
from fedge.process.logs import keep_early_engine_errors


def stop_event() -> threading.Event | None:
    """Event set by Flower when its engine has stopped, found on its ServerApp's stack; None if absent."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        event = frame.f_locals.get("stop_event")
        if isinstance(event, threading.Event) and frame.f_globals["__name__"].startswith("flwr."):
            return event
        frame = frame.f_back
    return None


def catch_interrupts() -> None:
    """Handle SIGINT in Flower's simulation process; no effect in others or outside the main thread.

    Called when the ClientApp is loaded, the only moment at which Flower's main thread runs Fedge's code.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or federation_of_this_process().num_supernodes == 0:
        return
    previous = signal.getsignal(signal.SIGINT)

    def handle(signum: int, frame: FrameType | None) -> Any:
        end_on_signal(signum)
        if callable(previous):
            return previous(signum, frame)
        return None

    if previous != signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle)


def end_descendants_at_exit() -> None:
    """Let Flower's simulation process and all its descendants end with `flwr run`.

    No effect in other processes or when repeated. Called when ServerApp and ClientApp are loaded, whichever
    comes first: Ray starts after both, so its processes can be identified.
    """
    if federation_of_this_process().num_supernodes > 0 and start_reaper():
        borrow_output()
        keep_early_engine_errors()
        follow_parent(_end_as_orphan)


def _end_as_orphan() -> None:
    """Record the loss of the run's starter, as after a hang-up, and end this process."""
    end_on_signal(signal.SIGHUP)
    leave_now(128 + signal.SIGHUP)
