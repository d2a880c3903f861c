"""Queue of messages by urgency, for a server ahead of a virtual clock on an engine without priorities.

Flower processes messages in order of arrival. So it gets only as many as keep its workers busy, those due
first; the others wait here.
"""

import heapq
import time
from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import Protocol

from flwr.app import Message

_AHEAD = 2  # messages sent per worker: one being processed, one waiting


class PolledEngine(Protocol):
    """Engine polled for replies."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; returns their ids."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies received so far; each is returned once."""

    def wait(self, timeout_s: float) -> None:
        """Wait for one polling interval, at most `timeout_s` seconds."""

    def refuse_stopped(self) -> None:
        """Raise RunError if the engine has stopped."""


class Urgency:
    """Queue of messages by urgency, with replies kept until they are requested."""

    def __init__(self, engine: PolledEngine, workers: Callable[[], int]) -> None:
        """Empty queue.

        Args:
            engine: engine to send messages to.
            workers: returns the number of clients in training at a time, as currently known.
        """
        self._engine = engine
        self._workers = workers
        self._numbers = count(1)
        self._waiting: list[tuple[int, int, Message]] = []  # heap of (due, number, message)
        self._sent: dict[str, str] = {}  # the engine's message id → this queue's
        self._replies: dict[str, Message] = {}

    def push_due(self, message: Message, due: int) -> str:
        """Send a message before all those due later; returns its id."""
        number = next(self._numbers)
        heapq.heappush(self._waiting, (due, number, message))
        self._send_due()
        return str(number)

    def wait_for(self, message_id: str, timeout_s: float) -> Message | None:
        """Reply to one message; None without one within `timeout_s` seconds."""
        self.wait_for_any((message_id,), timeout_s)
        return self._replies.pop(message_id, None)

    def wait_for_any(self, message_ids: Collection[str], timeout_s: float) -> list[str]:
        """Ids of messages with a reply; waits for the first, at most `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while not (arrived := [key for key in message_ids if key in self._replies]):
            self._collect()
            self._send_due()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return [key for key in message_ids if key in self._replies]
            if not any(key in self._replies for key in message_ids):
                self._engine.refuse_stopped()
                self._engine.wait(left_s)
        return arrived

    def _send_due(self) -> None:
        """Send the most urgent messages while workers are free."""
        free = _AHEAD * max(1, self._workers()) - len(self._sent)
        selected = [heapq.heappop(self._waiting) for _ in range(min(max(0, free), len(self._waiting)))]
        if selected:
            ids = self._engine.push_messages([message for _, _, message in selected])
            self._sent.update(zip(ids, (str(number) for _, number, _ in selected), strict=True))

    def _collect(self) -> None:
        """Pull the replies received so far."""
        for reply in self._engine.pull_messages(set(self._sent)) if self._sent else ():
            self._replies[self._sent.pop(reply.metadata.reply_to_message_id)] = reply
