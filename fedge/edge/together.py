"""Leaf servers of one process, and orders to several of them at once.

A bundle (`fedge.edge.packets.bundles`) is one order for each: all are carried out at the same time, each as
if it had come alone, and one that fails fails alone. A process that is a region carries out the region's
rounds (`fedge.edge.region`).
"""

import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from fedge.config.registers.failing import OWN_ERRORS
from fedge.edge.asked import failed_order, leaves_named, orders_of
from fedge.edge.at_work import AtWork
from fedge.edge.packets import orders
from fedge.edge.packets.bundles import bundled
from fedge.edge.progress import MergedNotes
from fedge.edge.region import RegionAtWork
from fedge.link.dial import Note
from fedge.link.frames import Packet


class Host(Protocol):
    """Leaf server of this process, as `fedge.edge.host.LeafHost` is one."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """One order at a time."""

    def in_run(self, facts: Mapping[str, Any]) -> AtWork:
        """The leaf server in a run, begun unless it is in that."""


class Together:
    """Leaf servers of one process, which can be the regions over them, too.

    Attributes:
        name: of the process.
    """

    def __init__(self) -> None:
        """Be empty."""
        self.name = uuid.uuid4().hex
        self._hosts: dict[int, Host] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._hosts)

    def take(self, leaf: int, host: Host) -> None:
        """Take a leaf server in."""
        self._hosts[leaf] = host

    def carry_out(self, packet: Packet, note: Note, facts: Mapping[str, Any]) -> Packet:
        """Carry out an order to several; meanwhile no other order reaches these leaf servers.

        Args:
            packet: the order.
            note: tells how far the clients are.
            facts: of the run, as the cloud has told the leaf server that it asks.

        Raises:
            OrderRefused: it cannot be.
        """
        is_bundle = packet.kind == orders.BUNDLE
        parts = orders_of(packet, self._hosts) if is_bundle else {}
        leaves = sorted(parts) if is_bundle else leaves_named(packet, self._hosts)
        with ExitStack() as stack:
            for leaf in leaves:
                stack.enter_context(self._hosts[leaf].lock)
            if is_bundle:
                return self._each(parts, note, facts)
            at_work = {leaf: self._hosts[leaf].in_run({**facts, "leaf": leaf}) for leaf in leaves}
            config = next(iter(at_work.values())).site.task.config
            return RegionAtWork(config, at_work).carry_out(packet, note)

    def _each(self, parts: Mapping[int, Packet], note: Note, facts: Mapping[str, Any]) -> Packet:
        """Answers of leaf servers to an order each, as a bundle; moments of calls count from its end."""
        notes = MergedNotes(note)

        def answer(leaf: int) -> tuple[Packet, float]:
            try:
                at_work = self._hosts[leaf].in_run({**facts, "leaf": leaf})
                found = at_work.carry_out(parts[leaf], notes.of(leaf))
            except OWN_ERRORS as error:
                found = failed_order(parts[leaf].kind, error)
            return found, time.monotonic()

        with ThreadPoolExecutor(len(parts), "leaf-of-bundle") as pool:
            answers = dict(zip(parts, pool.map(answer, parts), strict=True))
        now = time.monotonic()
        return bundled(
            orders.DONE, {leaf: _delayed(found, now - at) for leaf, (found, at) in answers.items()}, {}
        )


def _delayed(answer: Packet, by_s: float) -> Packet:
    """An answer that goes over the link some seconds after it was made."""
    if "book" not in answer.facts:
        return answer
    book = orders.delayed_book(answer.facts["book"], by_s)
    return Packet(answer.kind, {**answer.facts, "book": book}, answer.states)
