"""The end of all captures of a run: workers are told by a message.

A capture is written when it is ended, and only then (memray aggregates in memory); Ray kills its workers
without a word, so theirs would be empty.
"""

import os
import time

from flwr.serverapp import Grid

from fedge.exchange.hello import end_capture_message, read_end_capture
from fedge.process import capture, memory

_PAUSE_S = 0.25
_PATIENCE_S = 30.0


def end_captures(grid: Grid) -> None:
    """End the captures of all workers, then that of this process; without captures, do nothing.

    Which worker gets a message is Ray's choice: all clients are asked again until every worker has answered.
    """
    if not capture.is_on():
        return
    waiting = {process.pid for process in memory.measure() if process.role == "worker"}
    deadline = time.monotonic() + _PATIENCE_S
    while waiting and time.monotonic() < deadline:
        asked = [end_capture_message(node) for node in grid.get_node_ids()]
        replies = grid.send_and_receive(asked, timeout=_PATIENCE_S)
        waiting -= {read_end_capture(reply) for reply in replies if not reply.has_error()}
    capture.end()


def end_capture_here() -> int:
    """End the capture of this worker; returns its process id.

    It takes a moment even when there is nothing to do, so that the next message goes to another worker.
    """
    capture.end()
    time.sleep(_PAUSE_S)
    return os.getpid()
