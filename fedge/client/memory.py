"""A client's memory, read before a message is handled and written after training.

One file holds the memory of its algorithm, and the rest its uplink could not send.

In a simulation the file is in the run's folder; machines of a Ray cluster without access to this folder get
it with the message, and return it with the reply. Clients that own their data keep it on their own machine,
in a folder set in their node's configuration, never by the cloud: only the run's name comes from a message.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.config.registers.own_places import own_place
from fedge.exchange.algorithm import MemoryPlace
from fedge.states.averaging import State
from fedge.states.files import StateFileError
from fedge.states.memory import KeptVersion, forget_memories, read_memory, write_memory
from fedge.states.named_states import Memory, packed, unpacked

KEY = "memory-folder"  # in a node's configuration
_RUN = re.compile(r"[0-9a-f]{16}")

_FEEDBACK = "uplink feedback"  # name of an entry in the file


def memory_in(place: MemoryPlace, client: int, node: Mapping[str, Any]) -> tuple[Memory | None, State]:
    """Memory of a client's algorithm, and of its uplink, in the valid version, copied.

    None, and an empty state, if it has none yet.

    Args:
        place: place named by the message.
        client: partition id.
        node: configuration of its node.

    Raises:
        StateFileError: the file is missing or damaged.
    """
    if place.kept is None:
        return None, {}
    if place.carried:
        memory = unpacked(place.memory or {})
    else:
        memory = unpacked(read_memory(_folder(place, node), client, place.kept))
    return memory, memory.pop(_FEEDBACK, {})


def memory_or_lost(
    place: MemoryPlace, client: int, node: Mapping[str, Any]
) -> tuple[Memory | None, State, str]:
    """Memories as in `memory_in`, and the reason if lost: clients that own their data start over.

    Raises:
        StateFileError: they are missing or damaged in the run's folder.
    """
    try:
        return (*memory_in(place, client, node), "")
    except StateFileError as error:
        if not place.run:
            raise
        return None, {}, str(error)


def keep_memory(
    place: MemoryPlace, client: int, leaf_round: int, memory: State, feedback: State, node: Mapping[str, Any]
) -> tuple[KeptVersion | None, State | None]:
    """Store a client's new memory, if one is wanted.

    Returns:
        The version, and None; or None, and the packed memory, if the server keeps the file.

    Args:
        place: place named by the message.
        client: partition id.
        leaf_round: leaf round of the new version.
        memory: packed memory of its algorithm.
        feedback: the rest its uplink could not send, by entry of the model.
        node: configuration of its node.

    Raises:
        StateFileError: the disk is full or gone.
        FloatingPointError: this rest is not finite.
    """
    if not place.keep:
        return None, None
    feedback_entry = packed({_FEEDBACK: feedback}, "memory of the uplink") if feedback else {}
    if place.carried:
        return None, {**memory, **feedback_entry}
    folder = _folder(place, node)
    kept = write_memory(folder, client, leaf_round, {**memory, **feedback_entry}, durably=bool(place.run))
    if place.run:
        previous_rounds = () if place.kept is None else (place.kept.leaf_round,)
        forget_memories(folder, client, {leaf_round, *previous_rounds, *place.needed})
    return kept, None


def _folder(place: MemoryPlace, node: Mapping[str, Any]) -> Path:
    """Folder of a run's memories, in the run's folder or on the client's machine."""
    if not place.run:
        return Path(place.folder)
    if not _RUN.fullmatch(place.run):
        raise StateFileError("the name of a run must be 16 digits of 0-9, a-f")
    return own_folder(node) / place.run


def own_folder(node: Mapping[str, Any]) -> Path:
    """Folder of memories on a client's machine, set in its node's configuration, or else of its account.

    Raises:
        ConfigError: the account has no home folder.
    """
    configured = node.get(KEY)
    if configured:
        return Path(str(configured))
    return own_place("XDG_STATE_HOME", ".local", "state") / "fedge" / "memory"
