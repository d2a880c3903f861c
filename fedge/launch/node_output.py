"""Output of a node's ClientApps: read from pipes, and passed on as far as there is room.

A client's output through Python is bounded where it is written (`fedge.process.output`); here all else is,
as native code's writes to its descriptors. Of one ClientApp 256 KiB are let through, of all 4 MiB an hour.
"""

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

A_CLIENT_APP = 2**18  # bytes
AN_HOUR = 2**22
_HOUR_S = 3600.0
_CHUNK = 65536
_KEPT = b"\n\r\t"
_HARMLESS = bytes(byte if byte >= 32 or byte in _KEPT else ord("?") for byte in range(256))


@dataclass
class _Pipe:
    """A pipe of one ClientApp: the descriptor that it stands for, and the rest of its room."""

    stands_for: int
    room: int = A_CLIENT_APP


class NodeOutput:
    """The pipes of ClientApps that are at work."""

    def __init__(self) -> None:
        self._pipes: dict[int, _Pipe] = {}
        self._began, self._hour = time.monotonic(), AN_HOUR
        self._dropped = self._said = 0

    @property
    def descriptors(self) -> list[int]:
        """Reading ends, to listen at."""
        return list(self._pipes)

    def fork(self) -> int:
        """Fork; in the child, standard output and error are pipes to here. Returns as `os.fork`."""
        pairs = [(*os.pipe(), stands_for) for stands_for in (1, 2)]
        pid = os.fork()
        for reading, writing, stands_for in pairs:
            if pid:
                self._pipes[reading] = _Pipe(stands_for)
            else:
                os.close(reading)
                os.dup2(writing, stands_for)
            os.close(writing)
        return pid

    def pass_on(self, ready: Iterable[int]) -> None:
        """Read from those of the pipes that have something, and let it be seen as far as there is room."""
        for reading in self._pipes.keys() & set(ready):
            said = os.read(reading, _CHUNK)
            if not said:
                os.close(reading)
                del self._pipes[reading]
                self._tell()
                continue
            pipe, room = self._pipes[reading], self._room()
            let = said[: min(room, pipe.room)]
            pipe.room -= len(let)
            self._hour -= len(let)
            self._dropped += len(said) - len(let)
            with suppress(OSError):  # nobody looks
                os.write(pipe.stands_for, let.translate(_HARMLESS))

    def _room(self) -> int:
        """Bytes that all may still say in this hour."""
        if time.monotonic() - self._began > _HOUR_S:
            self._began, self._hour = time.monotonic(), AN_HOUR
        return self._hour

    def _tell(self) -> None:
        """Say how much was left out, once it has doubled."""
        if self._dropped >= max(1, 2 * self._said):
            self._said = self._dropped
            print(
                f"fedge: {self._dropped:,} bytes of this node's output were left out; {A_CLIENT_APP:,} of a "
                f"call and {AN_HOUR:,} of an hour are kept", file=sys.stderr, flush=True,
            )  # fmt: skip
