"""A leaf server's end of the link: receives the cloud's orders and sends answers.

Orders within a run are executed by `fedge.edge.at_work`.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedge.config.registers.failing import OWN_ERRORS
from fedge.config.registers.option import ConfigError, shown
from fedge.edge.asked import CARRIED_OUT, OrderRefused, check_run, failed_order, most_bytes
from fedge.edge.at_work import LeafExecutor, Site
from fedge.edge.packets import orders
from fedge.edge.packets.hellos import VERSIONS
from fedge.edge.together import LeafServerGroup
from fedge.link.dial import Note
from fedge.link.entrance import HELLO
from fedge.link.frames import Packet
from fedge.link.gate import NUMBER, OVER
from fedge.native.library import usable_kernels
from fedge.process.escape import printable
from fedge.process.versions import versions
from fedge.states.averaging import State
from fedge.states.files import state_bytes

logger = logging.getLogger(__name__)

_MOST_BEFORE = (2**34, 2**28)  # bytes of the arrays, and of the head, of an order before the first run


Opening = Callable[[Mapping[str, Any]], Site]
"""Facts of a run, as the cloud tells them → what the leaf server has for it."""

Telling = Callable[[Mapping[str, Any]], tuple[Mapping[int, str], Sequence[str]]]
"""Facts of a run → partition id → what the client tells of windows that it owns, as text; and the kernels of
the native step that all these clients can use, best first."""


class LeafHost:
    """Handler of the cloud's orders, a `fedge.link.dial.QuestionHandler`."""

    def __init__(
        self, opening: Opening, telling: Telling | None = None, together: LeafServerGroup | None = None
    ) -> None:
        """Start without a run.

        Args:
            opening: opens a run.
            telling: asks clients for descriptions of their own windows.
            together: leaf servers of this process, including this one; None if there is only one.
        """
        self.lock = threading.RLock()  # one order at a time, including a region's
        self._opening = opening
        self._telling = telling
        self._together = together
        self._run: tuple[Mapping[str, Any], LeafExecutor] | None = None  # facts of the run, and its executor
        self.refused = ""  # the cloud's reason why the newest run has no finished round

    @property
    def end_description(self) -> str:
        """Description of how the latest run ended."""
        return f"no round of the run could be finished: {self.refused}" if self.refused else "the run is over"

    def hello(self) -> Packet:
        """Hello of this leaf server: versions, and kernels of the native step that its process supports."""
        facts = {VERSIONS: versions(), orders.KERNELS: " ".join(usable_kernels())}
        return Packet(
            HELLO, facts if self._together is None else {**facts, orders.SUBTREE: self._together.name}
        )

    def welcome(self, packet: Packet) -> None:
        """Record the cloud's presence."""
        logger.info("connected to the cloud: %s", shown(dict(packet.facts)))

    def answer(self, packet: Packet, note: Note) -> Packet:
        """Execute an order; errors are reported to the cloud."""
        try:
            with self.lock:
                return self._answer(packet, note)
        except OWN_ERRORS as error:
            return failed_order(packet.kind, error)

    def _answer(self, packet: Packet, note: Note) -> Packet:
        """Execute an order."""
        if packet.kind == OVER:
            reason = packet.facts.get(orders.REASON, "")
            self.refused = printable(reason[: orders.LONGEST_REASON]) if isinstance(reason, str) else ""
            self.close()
            return Packet(orders.DONE)
        if packet.kind in (orders.TELL, orders.BEGIN):
            check_run(packet.facts, begins=packet.kind == orders.BEGIN)
        if packet.kind == orders.TELL:
            return self._tell(packet.facts)
        if packet.kind == orders.BEGIN:
            at_work = self.in_run(packet.facts)
            return Packet(orders.DONE, {"clients": at_work.clients})
        is_of_several = packet.kind in orders.OF_SEVERAL and self._together is not None
        if packet.kind not in CARRIED_OUT and not is_of_several:
            raise OrderRefused(f"kind: {shown(packet.kind)}")
        if self._run is None or self._run[0]["run"] != packet.facts.get("run"):
            return Packet(orders.UNKNOWN)
        if is_of_several:
            assert self._together is not None
            return self._together.carry_out(packet, note, self._run[0])
        return self._run[1].carry_out(packet, note)

    def in_run(self, facts: Mapping[str, Any]) -> LeafExecutor:
        """The leaf server for a run, started if necessary, and again if the cloud describes it otherwise."""
        if self._run is None or _described(self._run[0]) != _described(facts):
            return self._begin(facts)
        return self._run[1]

    def most_bytes(self) -> tuple[int, int]:
        """Limits in bytes of the next order's arrays and of its head; larger orders are not read."""
        if self._run is None:
            return _MOST_BEFORE
        site, count = self._run[1].site, 1 if self._together is None else len(self._together)
        arrays, head = most_bytes(state_bytes(site.model), site.task.config.hierarchy.num_servers)
        return count * arrays, count * head

    def keep(self, state: State) -> State:
        """Store a state of an order as this run stores large states."""
        return state if self._run is None else self._run[1].site.facilities.shared.keep(state)

    def _tell(self, facts: Mapping[str, Any]) -> Packet:
        """Answer with clients' descriptions of their windows."""
        if self._telling is None:
            raise ConfigError(
                "its clients own no windows; start it with fedge leaf --nodes, or the cloud without --owners"
            )
        self.close()
        texts, kernels = self._telling(facts)
        told = {str(client): text for client, text in texts.items()}
        return Packet(orders.DONE, {"told": told, orders.KERNELS: " ".join(kernels)})

    def _begin(self, facts: Mapping[str, Any]) -> LeafExecutor:
        """Open a run in place of the previous one."""
        self.close()
        at_work = LeafExecutor(self._opening(facts))
        self._run = facts, at_work
        return at_work

    def close(self) -> None:
        """Release the clients."""
        run, self._run = self._run, None  # forgotten even if closing fails, so the next run can begin
        if run is not None:
            run[1].site.close()


def _described(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a run without the number of the message that brought them."""
    return {name: fact for name, fact in facts.items() if name != NUMBER}
