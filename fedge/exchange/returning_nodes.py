"""Nodes leaving, returning, or losing their message during an exchange.

Flower's SuperLink sends an error reply for a node whose heartbeat is overdue (a minute at most). It cannot
detect the loss of a message at a node, for example because its SuperNode could not send the reply. A node
processes one message after another, so a reply to a second message without one to the first means the first
was lost.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from flwr.app import Error, Message

from fedge.exchange.delivery import Answer
from fedge.exchange.engine import Engine
from fedge.exchange.failure import LOST
from fedge.exchange.node_registry import NodeRegistry

logger = logging.getLogger(__name__)

_LOOK_S = 1.0  # seconds between two checks of the nodes
_PATIENCE_S = 20.0  # seconds, plus three times its last duration, before a silent node is asked again
_FIRST_PATIENCE_S = 60.0  # the same if its duration is unknown
_FACTOR = 3.0


class NodeMonitor:
    """Follows the nodes of a deployment during exchanges.

    Attributes:
        wait_s: seconds for which an exchange waits for a node lost in it.
    """

    def __init__(self, engine: Engine, roll: NodeRegistry) -> None:
        """Start with the nodes of a roll."""
        self.wait_s = 0.0
        self._absent_since: dict[int, float] = {}  # partition id → when its node was found gone
        self._engine = engine
        self._roll = roll
        self._next_look = 0.0
        self._since: dict[str, float] = {}  # id of a question → when it was first seen
        self._silent: dict[int, str] = {}  # node asked again → its unanswered question
        self._suspected: set[str] = set()
        self._durations_s: dict[tuple[int, str], float] = {}  # (partition, kind of message) → seconds

    def stop_waiting_for(self, partitions: Iterable[int]) -> None:
        """Do not wait in exchanges for these partitions, which may return at any time."""
        self._absent_since |= dict.fromkeys(partitions, -math.inf)

    def answered(self, answer: Answer) -> None:
        """Record how long a reply took."""
        question, reply = answer
        start = self._since.pop(question.metadata.message_id, None)
        if start is not None and not reply.has_error():
            partition = self._roll.partition(question.metadata.dst_node_id)
            self._durations_s[partition, question.metadata.message_type] = time.monotonic() - start
            self._absent_since.pop(partition, None)

    def check_returned(
        self,
        pending: Mapping[str, Message],
        retry: Callable[[int], Message | None],
        gone: Callable[[], Collection[int]],
    ) -> tuple[list[Answer], list[Message], bool]:
        """Check from time to time for returned nodes.

        Args:
            pending: messages without a reply, by message id.
            retry: partition id → message to repeat to a returned node, or None if its partition has not
                failed.
            gone: returns the partitions that failed in this exchange because their node is absent.

        Returns:
            Error replies for lost messages; messages to send; whether to wait for an absent node.
        """
        now = time.monotonic()
        awaited = [p for p in gone() if now < self._absent_since.setdefault(p, now) + self.wait_s]
        if now < self._next_look:
            return [], [], bool(awaited)
        self._next_look = now + _LOOK_S
        connected = set(self._engine.get_node_ids())
        self._roll.ask(connected)
        lost = [question for key, question in pending.items() if key in self._suspected]
        self._suspected.clear()
        for node, reply in self._roll.answers():
            if node in self._silent:
                self._suspected.update({self._silent.pop(node)} & pending.keys())
            elif node not in self._roll.node_of.values():
                self._roll.readmit(node, reply)
        self._ask_silent_nodes(pending, connected, now)
        # under its id, which its key gives it
        returned = {p for p in gone() if self._roll.node_of[p] in connected}
        for partition, node in self._roll.rebind(connected, logger.warning).items():
            node_messages = [
                question for question in pending.values() if question.metadata.dst_node_id == node
            ]
            lost += [question for question in node_messages if question not in lost]
            if not node_messages:
                returned.add(partition)
        messages = [question for question in map(retry, sorted(returned)) if question is not None]
        return (
            [(question, _lost_reply(question)) for question in lost],
            messages,
            bool(set(awaited) - returned),
        )

    def _ask_silent_nodes(self, pending: Mapping[str, Message], connected: set[int], now: float) -> None:
        """Send a hello to nodes with overdue replies."""
        for key, question in pending.items():
            since = self._since.setdefault(key, now)
            node = question.metadata.dst_node_id
            duration_s = self._durations_s.get((self._roll.partition(node), question.metadata.message_type))
            patience = _FIRST_PATIENCE_S if duration_s is None else max(_PATIENCE_S, _FACTOR * duration_s)
            if now - since > patience and node in connected and node not in self._silent:
                self._since[key] = now  # and once more after as long again
                self._silent[node] = key
                self._roll.ask_again(node)


def _lost_reply(question: Message) -> Message:
    """An error reply in place of a missing one."""
    return Message(Error(LOST, "the node has lost the message"), reply_to=question)
