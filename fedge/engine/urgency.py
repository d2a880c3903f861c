"""Messages of a server that works ahead of a virtual clock, on an engine that works on them in any order.

Flower knows no urgency: messages are worked on as they come. So only as many messages are given to it
as keep its workers at work, those first that are due first, and the others wait here.
"""

import heapq
import time
from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import Protocol

from flwr.app import Message

_AHEAD = 2  # messages given out per worker: one at work, and one waiting


class Polled(Protocol):
    """An engine whose replies are asked for again and again."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; returns their ids."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Those replies to messages that are there; each is handed out once."""

    def wait(self, timeout_s: float) -> None:
        """Wait for one poll, at most so many seconds."""

    def refuse_stopped(self) -> None:
        """Raise RunError when the engine has stopped."""


class Urgency:
    """Hands out messages by urgency, and keeps replies until they are asked for."""

    def __init__(self, engine: Polled, workers: Callable[[], int]) -> None:
        """Hand out nothing yet.

        Args:
            engine: to which messages are given.
            workers: how many clients it lets work at a time, as far as is known by then.
        """
        self._engine = engine
        self._workers = workers
        self._numbers = count(1)
        self._waiting: list[tuple[int, int, Message]] = []  # due, number, message to send: a heap
        self._given: dict[str, str] = {}  # the engine's id of a message → ours
        self._replies: dict[str, Message] = {}

    def push_due(self, message: Message, due: int) -> str:
        """Send a message before all that are due later; returns its id."""
        number = next(self._numbers)
        heapq.heappush(self._waiting, (due, number, message))
        self._give()
        return str(number)

    def wait_for(self, message_id: str, timeout_s: float) -> Message | None:
        """The reply to one message, None if it does not come within `timeout_s` seconds."""
        self.there_of((message_id,), timeout_s)
        return self._replies.pop(message_id, None)

    def there_of(self, message_ids: Collection[str], timeout_s: float) -> list[str]:
        """Messages whose replies are there; waits until one is, at most `timeout_s` seconds."""
        until = time.monotonic() + timeout_s
        while not (found := [key for key in message_ids if key in self._replies]):
            self._collect()
            self._give()
            left_s = until - time.monotonic()
            if left_s <= 0:
                return [key for key in message_ids if key in self._replies]
            if not any(key in self._replies for key in message_ids):
                self._engine.refuse_stopped()
                self._engine.wait(left_s)
        return found

    def _give(self) -> None:
        """Give out the most urgent messages while workers are free."""
        free = _AHEAD * max(1, self._workers()) - len(self._given)
        chosen = [heapq.heappop(self._waiting) for _ in range(min(max(0, free), len(self._waiting)))]
        if chosen:
            ids = self._engine.push_messages([message for _, _, message in chosen])
            self._given.update(zip(ids, (str(number) for _, number, _ in chosen), strict=True))

    def _collect(self) -> None:
        """Keep the replies that are there."""
        for reply in self._engine.pull_messages(set(self._given)) if self._given else ():
            self._replies[self._given.pop(reply.metadata.reply_to_message_id)] = reply
