"""Nodes of a SuperLink that are bound to a partition: node N's key is that of partition N, and of no other.

Flower's SuperLink draws the node id of a key, and says it when the key is registered. The registrar of keys
(`fedge.launch.fleet`) writes it down; the run, which the SuperLink starts, finds the file by a variable of
its environment. A key without a number in its name binds nobody.
"""

import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from fedge.process.durable import write_bytes

_VARIABLE = "FEDGE_BOUND_NODES"  # names the file
_NAME = "partitions-of-nodes"
_NUMBERED = re.compile(r"node-(\d{1,6})")
_REGISTERED = re.compile(r"SuperNode (\d{1,20}) registered")  # as in `flwr supernode register`


def nodes_registered(said: str) -> list[int]:
    """Node ids of keys that Flower has registered, in their order, from its command's output."""
    return [int(found) for found in _REGISTERED.findall(said)]


def partition_of_key(key: Path) -> int | None:
    """The partition that a key is of, None where its name has no number: 3 for ``node-3.pub``."""
    found = _NUMBERED.fullmatch(key.stem)
    return int(found[1]) if found else None


def bind(folder: Path, nodes: Mapping[int, int]) -> None:
    """Add node id → partition to those of a SuperLink's folder."""
    path = folder / _NAME
    known = {**_read(path), **nodes}
    write_bytes(path, "".join(f"{node} {partition}\n" for node, partition in known.items()).encode())


def forget(folder: Path) -> None:
    """Bind nobody any more in a SuperLink's folder."""
    with suppress(FileNotFoundError):
        (folder / _NAME).unlink()


def tell(environment: MutableMapping[str, str], folder: Path) -> None:
    """Let runs that are started with an environment know the bound nodes of a SuperLink's folder."""
    environment[_VARIABLE] = str(folder / _NAME)


class BoundNodes:
    """Nodes bound to partitions, for this process's run. Keys may come meanwhile."""

    def __init__(self, bound: Mapping[int, int] | None = None) -> None:
        """Take node id → partition, by default from the SuperLink's folder at each question."""
        self._bound = bound

    def __call__(self, node: int) -> int | None:
        """The partition that a node is bound to, None for one that is not."""
        if self._bound is not None:
            return self._bound.get(node)
        return _read(Path(os.environ[_VARIABLE])).get(node) if _VARIABLE in os.environ else None


def _read(path: Path) -> dict[int, int]:
    """Node id → partition in a file; nobody where there is none."""
    found: dict[int, int] = {}
    lines: Iterable[str] = ()
    with suppress(FileNotFoundError):
        lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        node, partition = map(int, line.split())
        found[node] = partition
    return found
