"""Memory of a client's algorithm, read before a message is answered and written after training."""

from pathlib import Path

from fedge.exchange.algorithm import MemoryPlace
from fedge.states.averaging import State
from fedge.states.memory import Kept, read_memory, write_memory
from fedge.states.named import Memory, unpacked


def memory_in(place: MemoryPlace, client: int) -> Memory | None:
    """The memory of a client in the version that counts, in arrays of its own; None for none yet.

    Raises:
        StateFileError: it is gone or damaged.
    """
    if place.kept is None:
        return None
    return unpacked(read_memory(Path(place.folder), client, place.kept))


def keep_memory(place: MemoryPlace, client: int, leaf_round: int, memory: State) -> Kept | None:
    """Keep a client's new memory, packed, if it is to keep any; returns the version.

    Raises:
        StateFileError: the disk is full or gone.
    """
    if not place.keep:
        return None
    return write_memory(Path(place.folder), client, leaf_round, memory)
