"""What is left on a disk whose power failed: a log of file operations, replayed without what was not synced.

A file keeps what it held when it was last synced, a folder the names that it had when it was last synced:

    names    folders have lost their unsynced names, files their unsynced content
    content  names are all there (a journal wrote them), unsynced content of files is gone
    zeros    the same, but files have their length: zeros stand where content was not synced
"""

import os
import re
from pathlib import Path

MODES = ("names", "content", "zeros")
_HEAD = re.compile(rb"(\w+) (-?\d+) (-?\d+) (-?\d+) (\d+)\n")


def read_log(path):
    """Return the operations (name, descriptor, a, b, data) of a log of file_faults.c."""
    log, at, found = Path(path).read_bytes(), 0, []
    while at < len(log):
        head = _HEAD.match(log, at)
        size = int(head[5])
        found.append(
            (head[1].decode(), int(head[2]), int(head[3]), int(head[4]), log[head.end() : head.end() + size])
        )
        at = head.end() + size
    return found


class _File:
    def __init__(self):
        self.now = b""
        self.synced = b""

    def write(self, offset, data):
        self.now = self.now[:offset].ljust(offset, b"\0") + data + self.now[offset + len(data) :]

    def sync(self):
        self.synced = self.now


class _Folder:
    def __init__(self):
        self.now = {}
        self.synced = {}

    def sync(self):
        self.synced = dict(self.now)


def replay(log, count):
    """Return the root folder after the first `count` operations."""
    root, open_ = _Folder(), {}

    def find(path):
        node = root
        for name in filter(None, path.split("/")):
            node = node.now[name]
            if isinstance(node, str):
                node = root.now[node]  # the link "latest"
        return node

    def parent(path):
        folder, _, name = path.rpartition("/")
        return find(folder), name

    for operation, descriptor, a, b, data in log[:count]:
        path = data.decode() if operation not in ("write",) else ""
        if operation == "open":
            folder, name = parent(path)
            if b and name not in folder.now:
                folder.now[name] = _File()
            node = find(path)
            if isinstance(node, _File) and a & os.O_TRUNC:
                node.now = b""
            open_[descriptor] = node
        elif operation == "close":
            open_.pop(descriptor, None)
        elif operation == "write":
            open_[descriptor].write(a, data)
        elif operation == "cut":
            open_[descriptor].now = open_[descriptor].now[:a].ljust(a, b"\0")
        elif operation == "cutpath":
            node = find(path)
            node.now = node.now[:a].ljust(a, b"\0")
        elif operation == "fsync":
            open_[descriptor].sync()
        elif operation == "rename":
            (before, old), (after, new) = map(parent, path.split("\n"))
            after.now[new] = before.now.pop(old)
        elif operation == "remove":
            folder, name = parent(path)
            del folder.now[name]
        elif operation == "mkdir":
            folder, name = parent(path)
            folder.now[name] = _Folder()
        elif operation == "symlink":
            target, link = path.split("\n")
            folder, name = parent(link)
            folder.now[name] = target
        else:
            raise AssertionError(operation)
    return root


def restore(log, at, mode, place):
    """Write into `place` what is left of it when the power fails before operation `at`."""
    _write(replay(log, at - 1), mode, Path(place))


def _write(folder, mode, place):
    place.mkdir()
    for name, node in (folder.synced if mode == "names" else folder.now).items():
        path = place / name
        if isinstance(node, _Folder):
            _write(node, mode, path)
        elif isinstance(node, str):
            path.symlink_to(node)
        elif mode == "zeros":
            size = len(node.now)
            path.write_bytes(node.synced[:size].ljust(size, b"\0"))
        else:
            path.write_bytes(node.synced)
