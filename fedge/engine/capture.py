"""End of a run's memray captures; workers receive it as a message.

memray aggregates in memory and writes a capture only at its end. Ray kills its workers without warning, so
without this their captures would be empty.
"""

import logging
import os
import time

from flwr.app import Message
from flwr.serverapp import Grid

from fedge.exchange.failure import words_of
from fedge.exchange.hello import end_capture_message, read_end_capture
from fedge.process import capture
from fedge.process.escape import printable
from fedge.process.resources import memory

logger = logging.getLogger(__name__)

_PAUSE_S = 0.25
_PATIENCE_S = 30.0


def end_captures(grid: Grid) -> None:
    """End the captures of all workers, then of this process; does nothing without captures.

    Ray chooses the worker for each message, so all clients are asked repeatedly until every worker has
    answered.
    """
    if not capture.is_captured():
        return
    waiting = {process.pid for process in memory.measure() if process.role == "worker"}
    deadline = time.monotonic() + _PATIENCE_S
    while waiting and time.monotonic() < deadline:
        questions = [end_capture_message(node) for node in grid.get_node_ids()]
        replies = grid.send_and_receive(questions, timeout=_PATIENCE_S)
        waiting -= set(map(_ended_process, replies))
    capture.end()


def _ended_process(reply: Message) -> int:
    """Process id of a worker that has ended its capture; 0 if the reply reports none."""
    try:
        return read_end_capture(reply)
    except Exception as error:  # a client can put anything into a message
        logger.warning("a reply to the end of a capture is malformed: %s", printable(words_of(error)))
        return 0


def end_capture_here() -> int:
    """End the capture of this worker; returns its process id.

    It always takes a moment, so the next message goes to another worker.
    """
    capture.end()
    time.sleep(_PAUSE_S)
    return os.getpid()
