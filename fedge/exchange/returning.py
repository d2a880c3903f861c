"""Exchanges with nodes that leave, return, or lose their question.

Flower's SuperLink answers in its own name for a node with an overdue heartbeat (a minute at most). It cannot
detect a node's lost question: for example one pulled by a SuperNode unable to send the reply. A node works on
one message after another, so an answer to a second question without one to the first means a lost first
question.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from flwr.app import Error, Message

from fedge.exchange.delivery import Answer
from fedge.exchange.engine import Engine
from fedge.exchange.failure import LOST
from fedge.exchange.roll import Roll

logger = logging.getLogger(__name__)

_LOOK_S = 1.0  # between two looks at the nodes
_PATIENCE_S = 20.0  # before a silent node is asked again, and three times its last duration
_FIRST_PATIENCE_S = 60.0  # the same where nothing is known of its time
_FACTOR = 3.0


class Returning:
    """Looks after the nodes of a deployment while exchanges go on.

    Attributes:
        wait_s: waiting time of an exchange for a node lost in it.
    """

    def __init__(self, engine: Engine, roll: Roll) -> None:
        """Begin with the nodes of a roll."""
        self.wait_s = 0.0
        self._gone_at: dict[int, float] = {}  # partition id → when its node was found gone
        self._engine = engine
        self._roll = roll
        self._next_look = 0.0
        self._since: dict[str, float] = {}  # id of a question → when it was first seen
        self._silent: dict[int, str] = {}  # node asked again → its unanswered question
        self._suspected: set[str] = set()
        self._took_s: dict[tuple[int, str], float] = {}  # (partition, kind of message) → seconds

    def wait_for_none_of(self, partitions: Iterable[int]) -> None:
        """Keep no exchange open for partitions already waited for: they may come any time."""
        self._gone_at |= dict.fromkeys(partitions, -math.inf)

    def answered(self, answer: Answer) -> None:
        """Note how long an answer took."""
        question, reply = answer
        began = self._since.pop(question.metadata.message_id, None)
        if began is not None and not reply.has_error():
            partition = self._roll.partition(question.metadata.dst_node_id)
            self._took_s[partition, question.metadata.message_type] = time.monotonic() - began
            self._gone_at.pop(partition, None)

    def look(
        self,
        pending: Mapping[str, Message],
        again: Callable[[int], Message | None],
        gone: Callable[[], Collection[int]],
    ) -> tuple[list[Answer], list[Message], bool]:
        """Look for returned nodes, now and then.

        Args:
            pending: questions without an answer, by message id.
            again: (partition id) → question to repeat to a returned node, if its partition has failed by
                absence, or None.
            gone: gives the partitions failed by absence in this exchange.

        Returns:
            Lost questions, each with an error in place of its reply; messages to send; whether to wait for an
                absent node.
        """
        now = time.monotonic()
        awaited = [p for p in gone() if now < self._gone_at.setdefault(p, now) + self.wait_s]
        if now < self._next_look:
            return [], [], bool(awaited)
        self._next_look = now + _LOOK_S
        there = set(self._engine.get_node_ids())
        self._roll.ask(there)
        lost = [question for key, question in pending.items() if key in self._suspected]
        self._suspected.clear()
        for node, reply in self._roll.answers():
            if node in self._silent:
                self._suspected.update({self._silent.pop(node)} & pending.keys())
            elif node not in self._roll.node_of.values():
                self._roll.come_back(node, reply)
        self._ask_the_silent(pending, there, now)
        back = {p for p in gone() if self._roll.node_of[p] in there}  # under its id, which its key gives it
        for partition, node in self._roll.rebind(there, logger.warning).items():
            mine = [question for question in pending.values() if question.metadata.dst_node_id == node]
            lost += [question for question in mine if question not in lost]
            if not mine:
                back.add(partition)
        more = [question for question in map(again, sorted(back)) if question is not None]
        return [(question, _lost(question)) for question in lost], more, bool(set(awaited) - back)

    def _ask_the_silent(self, pending: Mapping[str, Message], there: set[int], now: float) -> None:
        """Say hello to nodes with overdue answers."""
        for key, question in pending.items():
            began = self._since.setdefault(key, now)
            node = question.metadata.dst_node_id
            took = self._took_s.get((self._roll.partition(node), question.metadata.message_type))
            patience = _FIRST_PATIENCE_S if took is None else max(_PATIENCE_S, _FACTOR * took)
            if now - began > patience and node in there and node not in self._silent:
                self._since[key] = now  # and once more after as long again
                self._silent[node] = key
                self._roll.ask_again(node)


def _lost(question: Message) -> Message:
    """An error in place of a missing reply."""
    return Message(Error(LOST, "the node has lost the message"), reply_to=question)
