"""Partitions bound to the nodes of a SuperLink by their keys: node-N may serve partition N, and no other.

Flower's SuperLink assigns the node id of a key and prints it at registration. The registrar of keys
(`fedge.launch.flower_runs.fleet`) writes it to a file, which the run, started by the SuperLink, finds through
an environment variable. A key without a number in its name binds no node.
"""

import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from fedge.config.registers.option import ConfigError, shown
from fedge.process.durable import write_bytes

_VARIABLE = "FEDGE_BOUND_NODES"  # path of the file
_NAME = "partitions-of-nodes"
_KEY_NAME = re.compile(r"node-(\d{1,6})")
_BINDING = re.compile(r"(\d{1,20}) (\d{1,6})", re.ASCII)
_REGISTERED = re.compile(r"SuperNode (\d{1,20}) registered")  # output of `flwr supernode register`


def nodes_registered(output: str) -> list[int]:
    """Node ids of registered keys, in order, from the output of Flower's command."""
    return [int(node) for node in _REGISTERED.findall(output)]


def partition_of_key(key: Path) -> int | None:
    """Partition of a key, e.g. 3 for ``node-3.pub``; None if its name has no number."""
    match = _KEY_NAME.fullmatch(key.stem)
    return int(match[1]) if match else None


def bind_nodes(folder: Path, nodes: Mapping[int, int]) -> None:
    """Add node id → partition to the bindings in a SuperLink's folder."""
    path = folder / _NAME
    bindings = {**_read_bindings(path), **nodes}
    write_bytes(path, "".join(f"{node} {partition}\n" for node, partition in bindings.items()).encode())


def forget_bindings(folder: Path) -> None:
    """Delete all bindings in a SuperLink's folder."""
    with suppress(FileNotFoundError):
        (folder / _NAME).unlink()


def export_bindings(environment: MutableMapping[str, str], folder: Path) -> None:
    """Set the environment variable by which runs find the bindings of a SuperLink's folder."""
    environment[_VARIABLE] = str(folder / _NAME)


class BoundNodes:
    """Bindings of nodes to partitions for this process's run; keys may be added meanwhile."""

    def __init__(self, bindings: Mapping[int, int] | None = None) -> None:
        """Store bindings, node id → partition; None to read the SuperLink's file at each query."""
        self._bindings = bindings

    def __call__(self, node: int) -> int | None:
        """Partition to which a node is bound; None without a binding."""
        if self._bindings is not None:
            return self._bindings.get(node)
        return _read_bindings(Path(os.environ[_VARIABLE])).get(node) if _VARIABLE in os.environ else None


def _read_bindings(path: Path) -> dict[int, int]:
    """Bindings in a file, node id → partition; empty if there is no file.

    Raises:
        ConfigError: a line has another form.
    """
    bindings: dict[int, int] = {}
    lines: Iterable[str] = ()
    with suppress(FileNotFoundError):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        match = _BINDING.fullmatch(line)
        if match is None:  # without it, a node could claim any partition
            raise ConfigError(
                f"{path} must hold lines NODE PARTITION, as fedge superlink writes them, but has "
                f"{shown(line)}; start fedge superlink again with another --folder"
            )
        bindings[int(match[1])] = int(match[2])
    return bindings
