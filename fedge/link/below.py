"""Leaves below a server of a tree, as the cloud tells the process that is all of them."""

from pathlib import Path
from typing import Any

from fedge.config.option import shown
from fedge.link.dial import Link, Note, Refused
from fedge.link.entrance import HELLO
from fedge.link.frames import Packet
from fedge.link.gate import BELOW
from fedge.process.escape import printable

_MOST = 1000  # leaves of one process: each has a stream and a thread
_LONGEST = 200  # characters of what a cloud says that cannot be
_MOST_BYTES = (0, 2**20)  # of the arrays, and of the head, of a cloud's welcome


class _Asking:
    """A link on which nothing is answered: its welcome names the leaves."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.told: Any = None

    def hello(self) -> Packet:
        """Hello of nobody in particular."""
        return Packet(HELLO)

    def welcome(self, packet: Packet) -> None:
        """Take the leaves, and end the link."""
        self.told = packet.facts.get(BELOW)
        self._link.stop()

    def answer(self, packet: Packet, note: Note) -> Packet:
        """Nothing: a cloud asks those alone who have said for which leaf they speak."""
        raise Refused("the cloud asks a link that speaks for no leaf")


class Below:
    """The question which leaves a process is; `stop` ends it from another thread."""

    def __init__(self, address: str, certificates: Path, path: str) -> None:
        """Get ready to dial.

        Args:
            address: host and port of the cloud.
            certificates: folder with ca.crt, server-PATH.crt and server-PATH.key.
            path: of the server, as "1.0".

        Raises:
            ConfigError: a file of TLS is not usable.
        """
        self._link = Link(address, certificates, None, path)

    def stop(self) -> None:
        """Ask no more."""
        self._link.stop()

    def leaves(self, lost_s: float) -> list[int]:
        """Numbers of the leaves, ascending, once the cloud is there; none after `stop`.

        Args:
            lost_s: seconds without the cloud after which it is given up.

        Raises:
            Refused: the cloud does not want this server, was away for so long, or names no leaves.
        """
        asking = _Asking(self._link)
        self._link.serve(asking, lost_s, lambda: _MOST_BYTES)
        told = asking.told
        if told is None:
            return []
        is_list = isinstance(told, list) and all(type(leaf) is int and 0 <= leaf < 10**6 for leaf in told)
        if not is_list or not 0 < len(set(told)) == len(told) <= _MOST:
            raise Refused(
                f"the cloud must name 1 to {_MOST} leaves below this server, but says "
                f"{printable(shown(told)[:_LONGEST])}"
            )
        return sorted(told)
