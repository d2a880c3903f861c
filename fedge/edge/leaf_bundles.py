"""Several leaf servers in one process, and orders to them in bundles.

A bundle (`fedge.edge.packets.bundles`) has one order for each. All are executed in parallel, each as if it
had arrived alone, and a failed order does not affect the others. A process that also runs a region executes
the region's rounds (`fedge.edge.region`).
"""

import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from fedge.config.registers.failing import own_errors
from fedge.edge.order_checks import failed_order, leaves_named, orders_of
from fedge.edge.order_execution import LeafExecutor
from fedge.edge.packets import orders
from fedge.edge.packets.bundles import bundled
from fedge.edge.progress import MergedNotes
from fedge.edge.region import RegionExecutor
from fedge.link.dial import Note
from fedge.link.frames import Packet


class Host(Protocol):
    """Interface of a leaf server in this process, such as `fedge.edge.host.LeafHost`."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Lock: one order is executed at a time."""

    def in_run(self, facts: Mapping[str, Any]) -> LeafExecutor:
        """The leaf server for a run, started if necessary, and again after a new description by the cloud."""


class LeafServerGroup:
    """Leaf servers of one process, which can also run the regions above them.

    Attributes:
        name: name of the process.
    """

    def __init__(self) -> None:
        """Start without leaf servers."""
        self.name = uuid.uuid4().hex
        self._hosts: dict[int, Host] = {}

    def __len__(self) -> int:
        """Number of leaf servers."""
        return len(self._hosts)

    def take(self, leaf: int, host: Host) -> None:
        """Add a leaf server."""
        self._hosts[leaf] = host

    def carry_out(self, packet: Packet, note: Note, facts: Mapping[str, Any]) -> Packet:
        """Execute a bundle; meanwhile these leaf servers accept no other order.

        Args:
            packet: the order.
            note: reports the clients' progress.
            facts: facts of the run, sent by the cloud to the leaf server whose link it uses.

        Raises:
            OrderRefused: the bundle is invalid.
        """
        is_bundle = packet.kind == orders.BUNDLE
        parts = orders_of(packet, self._hosts) if is_bundle else {}
        leaves = sorted(parts) if is_bundle else leaves_named(packet, self._hosts)
        with ExitStack() as stack:
            for leaf in leaves:
                stack.enter_context(self._hosts[leaf].lock)
            if is_bundle:
                return self._carry_out_bundle(parts, note, facts)
            executors = {leaf: self._hosts[leaf].in_run({**facts, "leaf": leaf}) for leaf in leaves}
            config = next(iter(executors.values())).site.task.config
            return RegionExecutor(config, executors).carry_out(packet, note)

    def _carry_out_bundle(self, parts: Mapping[int, Packet], note: Note, facts: Mapping[str, Any]) -> Packet:
        """Answers of leaf servers to one order each, as a bundle; times of calls are relative to its end."""
        notes = MergedNotes(note)

        def answer(leaf: int) -> tuple[Packet, float]:
            try:
                executor = self._hosts[leaf].in_run({**facts, "leaf": leaf})
                packet = executor.carry_out(parts[leaf], notes.receiver(leaf))
            except own_errors() as error:
                packet = failed_order(parts[leaf].kind, error)
            return packet, time.monotonic()

        with ThreadPoolExecutor(len(parts), "leaf-of-bundle") as pool:
            answers = dict(zip(parts, pool.map(answer, parts), strict=True))
        now = time.monotonic()
        return bundled(
            orders.DONE,
            {leaf: _delay_times(packet, now - ended) for leaf, (packet, ended) in answers.items()},
            {},
        )


def _delay_times(answer: Packet, by_s: float) -> Packet:
    """An answer sent `by_s` seconds after it was made, with its times adjusted."""
    if "book" not in answer.facts:
        return answer
    book = orders.delayed_book(answer.facts["book"], by_s)
    return Packet(answer.kind, {**answer.facts, "book": book}, answer.states)
