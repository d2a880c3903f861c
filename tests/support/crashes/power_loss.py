"""Remains on a disk: a log of file operations, replayed as far as a process came that was killed.

And where the power failed, replayed without what was not synced.

A file keeps what it held when it was last synced, a folder the names that it had when it was last synced:

    names    folders have lost their unsynced names, files their unsynced content
    content  names are all there (a journal wrote them), unsynced content of files is gone
    zeros    the same, but files have their length: zeros stand where content was not synced

What is left is name → bytes, the target of a link, or what is left in a folder.
"""

import hashlib
import os
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

MODES = ("names", "content", "zeros")
_SLOW = "messages"
KILLED = "killed"  # all is there that was done
_HEAD = re.compile(rb"(\w+) (-?\d+) (-?\d+) (-?\d+) (-?\d+) (\d+)\n")


class Operation(NamedTuple):
    """An entry of a log of file_faults.c; `number` counts operations that change what is on disk.

    One that changes nothing has that of the operation before it.
    """

    name: str
    descriptor: int
    a: int
    b: int
    number: int
    data: bytes


def read_log(path):
    """The operations of a log of file_faults.c."""
    log, at, found = Path(path).read_bytes(), 0, []
    while at < len(log):
        head = _HEAD.match(log, at)
        size = int(head[6])
        numbers = (int(head[place]) for place in (2, 3, 4, 5))
        found.append(Operation(head[1].decode(), *numbers, log[head.end() : head.end() + size]))
        at = head.end() + size
    return found


class _File:
    def __init__(self):
        self.now = b""
        self.synced = b""

    def write(self, offset, data):
        self.now = self.now[:offset].ljust(offset, b"\0") + data + self.now[offset + len(data) :]

    def cut(self, size):
        self.now = self.now[:size].ljust(size, b"\0")

    def sync(self):
        self.synced = self.now


class _Folder:
    def __init__(self):
        self.now = {}
        self.synced = {}

    def sync(self):
        self.synced = dict(self.now)


class Disk:
    """An empty folder after operations, and the part of it that is safe."""

    def __init__(self):
        self._root = _Folder()
        self._files = {}

    def apply(self, operation):
        """Carry out an operation of a log."""
        getattr(self, f"_{operation.name}")(operation)

    def left(self, mode):
        """Remains when the power fails now: name → bytes, the target of a link, or a folder's."""
        return _left(self._root, mode)

    def _find(self, path):
        node = self._root
        for name in filter(None, path.split("/")):
            folder, node = node, node.now[name]
            if isinstance(node, str):
                node = folder.now[node]  # the link "latest"
        return node

    def _place(self, path):
        folder, _, name = path.rpartition("/")
        return self._find(folder).now, name

    def _open(self, operation):
        names, name = self._place(operation.data.decode())
        if operation.b and name not in names:
            names[name] = _File()
        node = self._find(operation.data.decode())
        if isinstance(node, _File) and operation.a & os.O_TRUNC:
            node.now = b""
        self._files[operation.descriptor] = node

    def _close(self, operation):
        self._files.pop(operation.descriptor, None)

    def _write(self, operation):
        self._files[operation.descriptor].write(operation.a, operation.data)

    def _cut(self, operation):
        self._files[operation.descriptor].cut(operation.a)

    def _cutpath(self, operation):
        self._find(operation.data.decode()).cut(operation.a)

    def _fsync(self, operation):
        self._files[operation.descriptor].sync()

    def _rename(self, operation):
        (before, old), (after, new) = map(self._place, operation.data.decode().split("\n"))
        after[new] = before.pop(old)

    def _remove(self, operation):
        names, name = self._place(operation.data.decode())
        del names[name]

    def _mkdir(self, operation):
        names, name = self._place(operation.data.decode())
        names[name] = _Folder()

    def _symlink(self, operation):
        target, link = operation.data.decode().split("\n")
        names, name = self._place(link)
        names[name] = target


def _left(folder, mode):
    found = {}
    for name, node in (folder.synced if mode == "names" else folder.now).items():
        if isinstance(node, _Folder):
            found[name] = _left(node, mode)
        elif isinstance(node, str):
            found[name] = node
        elif mode == "zeros":
            size = len(node.now)
            found[name] = node.synced[:size].ljust(size, b"\0")
        else:
            found[name] = node.now if mode == KILLED else node.synced
    return found


def failures(log):
    """(mode, n, what is left) for power failures before the n-th operation, and after the last one.

    One of those that leave the same: n is the last, before which the most had been promised.
    """
    disk, found = Disk(), {}
    for at in range(1, len(log) + 2):
        for mode in MODES:
            left = disk.left(mode)
            found[digest(left)] = (mode, at, left)
        if at <= len(log):
            disk.apply(log[at - 1])
    return list(found.values())


def kills(log):
    """("kill" or "torn", number of an operation) → what a kill before or amid it leaves.

    Operations that changed nothing, of which the log has only that they were counted, are left out.
    """
    disk, found = Disk(), {}
    for operation in log:
        number = operation.number
        if number > 0:
            found.setdefault(("kill", number), disk.left(KILLED))
        if number > 0 and operation.name == "write":
            disk.apply(operation._replace(data=operation.data[: len(operation.data) // 2]))
            found["torn", number] = disk.left(KILLED)
        disk.apply(operation)
    numbers = [number for _, number in found]
    return {**found, ("kill", max(numbers) + 1): disk.left(KILLED)}


def digest(left):
    """Digest that tells whether two disks have the same remains."""
    whole = hashlib.sha256()
    for name in sorted(left):
        held = left[name]
        content = digest(held) if isinstance(held, dict) else _digest(_bytes(held))
        whole.update(f"{type(held).__name__} {name!r} ".encode() + content)
    return whole.digest()


@cache
def _digest(content):
    return hashlib.sha256(content).digest()


def _bytes(held):
    return held.encode() if isinstance(held, str) else held


def unlike(left, other, path=""):
    """Places where two runs' remains differ; files with times in them must only be there."""
    if isinstance(left, dict) and isinstance(other, dict):
        left, other = ({_lasting(name): held for name, held in folder.items()} for folder in (left, other))
        left.pop(_SLOW, None)
        other.pop(_SLOW, None)
        if left.keys() != other.keys():
            return f"{path} has {sorted(left.keys() ^ other.keys())} in one only"
        return next(filter(None, (unlike(left[name], other[name], f"{path}/{name}") for name in left)), "")
    is_same = left == other or (type(left) is type(other) and not path.endswith(".safetensors"))
    return "" if is_same else f"{path} differs"


def _lasting(name):
    """A name without the id of its process; `_SLOW` for files that only slow rounds leave."""
    return _SLOW if name.startswith("messages-") else re.sub(r"^(\.latest)-\d+", r"\1", name)


def read(place):
    """Content of a folder."""
    found = {}
    for path in Path(place).iterdir():
        if path.is_symlink():
            found[path.name] = os.readlink(path)
        else:
            found[path.name] = read(path) if path.is_dir() else path.read_bytes()
    return found


def restore(left, place):
    """Write what is left into a new folder."""
    place = Path(place)
    place.mkdir()
    for name, held in left.items():
        path = place / name
        if isinstance(held, dict):
            restore(held, path)
        elif isinstance(held, str):
            path.symlink_to(held)
        else:
            path.write_bytes(held)
