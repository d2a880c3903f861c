"""A leaf server's end of the link: receives the cloud's orders and sends answers.

Orders within a run are executed by `fedge.edge.order_execution`.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedge.config.registers.failing import own_errors
from fedge.config.registers.option import ConfigError, shown
from fedge.edge.leaf_bundles import LeafServerGroup
from fedge.edge.order_checks import CARRIED_OUT, OrderRefused, check_run, failed_order, most_bytes
from fedge.edge.order_execution import LeafExecutor, Site
from fedge.edge.packets import orders
from fedge.edge.packets.hellos import VERSIONS
from fedge.link.admission import HELLO
from fedge.link.dial import Note
from fedge.link.frames import Packet
from fedge.link.gate import NUMBER, OVER
from fedge.native.library import usable_kernels
from fedge.process.escape import printable
from fedge.process.versions import versions
from fedge.states.averaging import State
from fedge.states.files import state_bytes

logger = logging.getLogger(__name__)

_BYTES_BEFORE_RUN = (2**34, 2**28)  # bytes of the arrays, and of the head, of an order before the first run


Opening = Callable[[Mapping[str, Any]], Site]
"""Facts of a run, as the cloud tells them → what the leaf server has for it."""

Telling = Callable[[Mapping[str, Any]], tuple[Mapping[int, str], Sequence[str]]]
"""Facts of a run → partition id → what the client tells of windows that it owns, as text; and the kernels of
the native step that all these clients can use, best first."""


class LeafHost:
    """Handler of the cloud's orders, a `fedge.link.dial.QuestionHandler`."""

    def __init__(
        self, open_run: Opening, ask_clients: Telling | None = None, group: LeafServerGroup | None = None
    ) -> None:
        """Start without a run.

        Args:
            open_run: opens a run.
            ask_clients: asks clients for descriptions of their own windows.
            group: leaf servers of this process, including this one; None if there is only one.
        """
        self.lock = threading.RLock()  # one order at a time, including a region's
        self._open_run = open_run
        self._ask_clients = ask_clients
        self._group = group
        self._run: tuple[Mapping[str, Any], LeafExecutor] | None = None  # facts of the run, and its executor
        self.refused = ""  # the cloud's reason why the newest run has no finished round

    @property
    def end_description(self) -> str:
        """Description of how the latest run ended."""
        return f"no round of the run could be finished: {self.refused}" if self.refused else "the run is over"

    def hello(self) -> Packet:
        """Hello of this leaf server: versions, and kernels of the native step supported by its process."""
        facts = {VERSIONS: versions(), orders.KERNELS: " ".join(usable_kernels())}
        return Packet(HELLO, facts if self._group is None else {**facts, orders.SUBTREE: self._group.name})

    def welcome(self, packet: Packet) -> None:
        """Record the cloud's presence."""
        logger.info("connected to the cloud: %s", shown(dict(packet.facts)))

    def answer(self, packet: Packet, note: Note) -> Packet:
        """Execute an order; errors are reported to the cloud."""
        try:
            with self.lock:
                return self._execute(packet, note)
        except own_errors() as error:
            return failed_order(packet.kind, error)

    def _execute(self, packet: Packet, note: Note) -> Packet:
        """Execute an order."""
        if packet.kind == OVER:
            reason = packet.facts.get(orders.REASON, "")
            self.refused = printable(reason[: orders.LONGEST_REASON]) if isinstance(reason, str) else ""
            self.close()
            return Packet(orders.DONE)
        if packet.kind in (orders.TELL, orders.BEGIN):
            check_run(packet.facts, begins=packet.kind == orders.BEGIN)
        if packet.kind == orders.TELL:
            return self._describe_windows(packet.facts)
        if packet.kind == orders.BEGIN:
            executor = self.in_run(packet.facts)
            return Packet(orders.DONE, {"clients": executor.clients})
        is_for_group = packet.kind in orders.OF_SEVERAL and self._group is not None
        if packet.kind not in CARRIED_OUT and not is_for_group:
            raise OrderRefused(f"kind: {shown(packet.kind)}")
        if self._run is None or self._run[0]["run"] != packet.facts.get("run"):
            return Packet(orders.UNKNOWN)
        if is_for_group:
            assert self._group is not None
            return self._group.carry_out(packet, note, self._run[0])
        return self._run[1].carry_out(packet, note)

    def in_run(self, facts: Mapping[str, Any]) -> LeafExecutor:
        """The leaf server for a run, started if necessary, and again after a new description by the cloud."""
        if self._run is None or _without_number(self._run[0]) != _without_number(facts):
            return self._begin(facts)
        return self._run[1]

    def most_bytes(self) -> tuple[int, int]:
        """Limits in bytes of the next order's arrays and of its head; larger orders are not read."""
        if self._run is None:
            return _BYTES_BEFORE_RUN
        site, count = self._run[1].site, 1 if self._group is None else len(self._group)
        arrays, head = most_bytes(state_bytes(site.model), site.task.config.hierarchy.num_servers)
        return count * arrays, count * head

    def keep(self, state: State) -> State:
        """Store a state of an order as this run stores large states."""
        return state if self._run is None else self._run[1].site.facilities.shared.keep(state)

    def _describe_windows(self, facts: Mapping[str, Any]) -> Packet:
        """Answer with clients' descriptions of their windows."""
        if self._ask_clients is None:
            raise ConfigError(
                "its clients own no windows; start it with fedge leaf --nodes, or the cloud without --owners"
            )
        self.close()
        texts, kernels = self._ask_clients(facts)
        descriptions = {str(client): text for client, text in texts.items()}
        return Packet(orders.DONE, {"told": descriptions, orders.KERNELS: " ".join(kernels)})

    def _begin(self, facts: Mapping[str, Any]) -> LeafExecutor:
        """Open a run in place of the previous one."""
        self.close()
        executor = LeafExecutor(self._open_run(facts))
        self._run = facts, executor
        return executor

    def close(self) -> None:
        """Release the clients."""
        run, self._run = self._run, None  # forgotten even if closing fails, so the next run can begin
        if run is not None:
            run[1].site.close()


def _without_number(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a run without the number of their message."""
    return {name: fact for name, fact in facts.items() if name != NUMBER}
