"""Memory of a client, read before a message is answered and written after training.

In one file lie the memory of its algorithm, and what its uplink could not send.

In a simulation it lies in the run's folder; on a Ray cluster, whose other machines do not see that, messages
carry it to and from its file there. Clients that own their data keep it on their own machine, in a
folder that their node's configuration names, and a cloud never: of a message only the run's name is read.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.config.registers.own_places import own_place
from fedge.exchange.algorithm import MemoryPlace
from fedge.states.averaging import State
from fedge.states.files import StateFileError
from fedge.states.memory import Kept, forget_memories, read_memory, write_memory
from fedge.states.named import Memory, packed, unpacked

KEY = "memory-folder"  # of a node's configuration
_RUN = re.compile(r"[0-9a-f]{16}")

_FEEDBACK = "uplink feedback"  # among the names of a file


def memory_in(place: MemoryPlace, client: int, node: Mapping[str, Any]) -> tuple[Memory | None, State]:
    """Memory of a client's algorithm, and of its uplink, in the version that counts, in arrays of its own.

    None, and nothing, where it has none yet.

    Args:
        place: as the message says.
        client: its partition id.
        node: configuration of its node.

    Raises:
        StateFileError: it is gone or damaged.
    """
    if place.kept is None:
        return None, {}
    if place.carried:
        found = unpacked(place.memory or {})
    else:
        found = unpacked(read_memory(_folder(place, node), client, place.kept))
    return found, found.pop(_FEEDBACK, {})


def memory_or_lost(
    place: MemoryPlace, client: int, node: Mapping[str, Any]
) -> tuple[Memory | None, State, str]:
    """Memories as of `memory_in`, and why they are lost; on a client's own machine they are begun anew then.

    Raises:
        StateFileError: they are gone or damaged, and were in the run's folder.
    """
    try:
        return (*memory_in(place, client, node), "")
    except StateFileError as error:
        if not place.run:
            raise
        return None, {}, str(error)


def keep_memory(
    place: MemoryPlace, client: int, leaf_round: int, memory: State, feedback: State, node: Mapping[str, Any]
) -> tuple[Kept | None, State | None]:
    """Keep a client's new memory, if it is to keep any.

    Returns:
        The version, and None; or None, and the memory, packed, where the server keeps its file.

    Args:
        place: as the message says.
        client: its partition id.
        leaf_round: that leaves the version.
        memory: of its algorithm, packed.
        feedback: what its uplink could not send, by entry of the model.
        node: configuration of its node.

    Raises:
        StateFileError: the disk is full or gone.
        FloatingPointError: what could not be sent is not finite.
    """
    if not place.keep:
        return None, None
    waits = packed({_FEEDBACK: feedback}, "memory of the uplink") if feedback else {}
    if place.carried:
        return None, {**memory, **waits}
    folder = _folder(place, node)
    made = write_memory(folder, client, leaf_round, {**memory, **waits}, durably=bool(place.run))
    if place.run:
        before = () if place.kept is None else (place.kept.leaf_round,)
        forget_memories(folder, client, {leaf_round, *before, *place.needed})
    return made, None


def _folder(place: MemoryPlace, node: Mapping[str, Any]) -> Path:
    """Folder of a run's memories: the run's own, or on the client's machine."""
    if not place.run:
        return Path(place.folder)
    if not _RUN.fullmatch(place.run):
        raise StateFileError("the name of a run must be 16 digits of 0-9, a-f")
    return own_folder(node) / place.run


def own_folder(node: Mapping[str, Any]) -> Path:
    """Folder of memories on a client's machine: of its node's configuration, else of its account.

    Raises:
        ConfigError: the account has no home folder.
    """
    given = node.get(KEY)
    if given:
        return Path(str(given))
    return own_place("XDG_STATE_HOME", ".local", "state") / "fedge" / "memory"
