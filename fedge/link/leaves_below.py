"""Query of a server of a tree for the leaves below it, all of which run in one process."""

from pathlib import Path
from typing import Any

from fedge.config.registers.option import shown
from fedge.link.admission import HELLO
from fedge.link.dial import Link, Note, Refused, Say
from fedge.link.frames import Packet
from fedge.link.gate import BELOW
from fedge.process.escape import printable

_MOST_LEAVES = 1000  # leaves of one process; each needs a stream and a thread
_LONGEST = 200  # characters of an impossible answer in an error message
_MOST_BYTES = (0, 2**20)  # arrays and head of the cloud's welcome


class _WelcomeHandler:
    """Link answering no questions; the cloud's welcome names the leaves."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.leaves: Any = None

    def hello(self) -> Packet:
        """Hello without a leaf."""
        return Packet(HELLO)

    def welcome(self, packet: Packet) -> None:
        """Store the leaves, and end the link."""
        self.leaves = packet.facts.get(BELOW)
        self._link.stop()

    def answer(self, packet: Packet, note: Note) -> Packet:
        """Raise Refused: the cloud may only ask links whose hello named a leaf."""
        raise Refused("the cloud sent a question to a link without a leaf")


class SubtreeQuery:
    """Query for the leaves to run in a process; `stop` ends it from another thread."""

    def __init__(self, address: str, certificates: Path, path: str, say: Say = lambda _: None) -> None:
        """Query over a link not connected yet.

        Args:
            address: HOST:PORT of the cloud.
            certificates: folder with ca.crt, server-PATH.crt and server-PATH.key.
            path: path of the server, e.g. "1.0".
            say: called with a line for each new reason why the cloud is out of contact.

        Raises:
            ConfigError: a TLS file is unusable.
        """
        self._link = Link(address, certificates, None, path, say)

    def stop(self) -> None:
        """End the query."""
        self._link.stop()

    def leaves(self, lost_s: float) -> list[int]:
        """Numbers of the leaves in ascending order, once the cloud answers; empty after `stop`.

        Args:
            lost_s: seconds without contact to the cloud after which to give up.

        Raises:
            Refused: the cloud refuses this server, was out of contact for `lost_s` seconds, or names no
                leaves.
        """
        handler = _WelcomeHandler(self._link)
        self._link.serve(handler, lost_s, lambda: _MOST_BYTES)
        numbers = handler.leaves
        if numbers is None:
            return []
        is_list = isinstance(numbers, list) and all(
            type(leaf) is int and 0 <= leaf < 10**6 for leaf in numbers
        )
        if not is_list or not 0 < len(set(numbers)) == len(numbers) <= _MOST_LEAVES:
            raise Refused(
                f"the cloud must name 1 to {_MOST_LEAVES} leaves below this server, but names "
                f"{printable(shown(numbers)[:_LONGEST])}"
            )
        return sorted(numbers)
