"""Replies of a ClientApp whose working time is unknown: sent all the same.

A SuperNode of Flower 1.25 looks for replies every half second, and sends with each how long its ClientApp
took. Its server keeps a reply first and notes that time after it, and notes none for a ClientApp that has
died. A reply found without a time is dropped ("Failed to send message … Start time or end time … is
missing"), and the run waits for it: on an overloaded machine, about one reply of a hundred.
"""

from importlib import import_module
from typing import Any

_STATE, _CLASS = "flwr.supernode.nodestate.in_memory_nodestate", "InMemoryNodeState"
_TIME = "get_message_processing_duration"


def send_untimed() -> None:
    """Let the SuperNode of this process send replies of unknown time with a time of 0 s."""
    try:
        state = getattr(import_module(_STATE), _CLASS)
        timed = getattr(state, _TIME)
    except (ImportError, AttributeError):  # another version of Flower
        return

    def duration(self: Any, message_id: str) -> float:
        try:
            return float(timed(self, message_id))
        except ValueError:
            return 0.0

    setattr(state, _TIME, duration)
