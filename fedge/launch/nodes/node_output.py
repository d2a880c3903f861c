"""Output of a node's ClientApps and of its SuperNode: read from pipes, and passed on up to a limit.

Output written by a client through Python is limited where it is written (`fedge.process.output`). This module
limits the rest, e.g. output of native code: to 256 KiB per ClientApp and 4 MiB per hour in total. Of Flower's
lines about attempts to reach a silent SuperLink, only the first is passed on.
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
_ATTEMPT, _CONTACT = b"Connection attempt failed, retrying", b"Connection successful"  # in Flower's output
_ALLOWED = b"\n\r\t"
_CONTROL_CODES_REPLACED = bytes(byte if byte >= 32 or byte in _ALLOWED else ord("?") for byte in range(256))


@dataclass
class _Pipe:
    """Pipe of one ClientApp: the replaced descriptor, and the bytes still allowed."""

    stands_for: int
    pid: int
    room: int = A_CLIENT_APP


class NodeOutput:
    """Pipes of the running ClientApps."""

    def __init__(self) -> None:
        self._pipes: dict[int, _Pipe] = {}
        self._hour_start, self._hour_budget = time.monotonic(), AN_HOUR
        self._dropped = self._reported = 0

    @property
    def descriptors(self) -> list[int]:
        """Reading ends, for `select`."""
        return list(self._pipes)

    def fork(self) -> int:
        """Fork with the child's standard output and error piped to this process; returns as `os.fork`."""
        pairs = [(*os.pipe(), stands_for) for stands_for in (1, 2)]
        pid = os.fork()
        for read_end, write_end, stands_for in pairs:
            if pid:
                self._pipes[read_end] = _Pipe(stands_for, pid)
            else:
                os.close(read_end)
                os.dup2(write_end, stands_for)
            os.close(write_end)
        return pid

    def reset_limit(self, pid: int) -> None:
        """Reset the limit of a process for a further message."""
        for pipe in self._pipes.values():
            if pipe.pid == pid:
                pipe.room = A_CLIENT_APP

    def forward_output(self, ready: Iterable[int]) -> None:
        """Read from the ready pipes, and print their output up to the limits."""
        for read_end in self._pipes.keys() & set(ready):
            output = os.read(read_end, _CHUNK)
            if not output:
                os.close(read_end)
                del self._pipes[read_end]
                self._report_dropped()
                continue
            pipe, room = self._pipes[read_end], self._remaining_bytes()
            printed = output[: min(room, pipe.room)]
            pipe.room -= len(printed)
            self._hour_budget -= len(printed)
            self._dropped += len(output) - len(printed)
            with suppress(OSError):  # the terminal may be closed
                os.write(pipe.stands_for, printed.translate(_CONTROL_CODES_REPLACED))

    def _remaining_bytes(self) -> int:
        """Bytes still allowed to be printed in this hour."""
        if time.monotonic() - self._hour_start > _HOUR_S:
            self._hour_start, self._hour_budget = time.monotonic(), AN_HOUR
        return self._hour_budget

    def _report_dropped(self) -> None:
        """Print the number of bytes dropped, at each doubling."""
        if self._dropped >= max(1, 2 * self._reported):
            self._reported = self._dropped
            print(
                f"fedge: {self._dropped:,} bytes of this node's output were left out; {A_CLIENT_APP:,} per "
                f"call and {AN_HOUR:,} per hour are kept", file=sys.stderr, flush=True,
            )  # fmt: skip


class SuperNodeOutput:
    """Output of a SuperNode with one line per lost contact, instead of one per attempt."""

    def __init__(self) -> None:
        self._has_contact = True

    def printable_part(self, output: bytes) -> bytes:
        """Part of further output to be printed.

        A line is usually written in one piece; of two pieces, both are passed on.
        """
        return b"".join(line for line in output.splitlines(keepends=True) if self._is_news(line))

    def _is_news(self, line: bytes) -> bool:
        """Whether a line is more than a further attempt to reach the same SuperLink."""
        if _ATTEMPT not in line:
            self._has_contact = self._has_contact or _CONTACT in line
            return True
        had_contact, self._has_contact = self._has_contact, False
        return had_contact
