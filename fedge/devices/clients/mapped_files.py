"""Large vectors and replies in files, of which the system maps only the parts in use.

On the virtual clock many models are alive at once: each version still in training, each buffered update, and
each early reply. Beyond `transfer.spill-above-mb` they are kept in files of the run folder
(`fedge.states.state_files`), which are removed after their last use.
"""

import mmap
import weakref

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from fedge.exchange.content import ARRAYS
from fedge.states.files import FileState
from fedge.states.records import entries, from_record, to_record
from fedge.states.state_files import SharedStates

_VECTOR = "vector"


class ArraySpill:
    """Moves large arrays to files; small ones stay in memory, as do all if the disk is full."""

    def __init__(self, shared: SharedStates) -> None:
        """Use these files, if `SharedStates.prepare` has enabled them."""
        self._shared = shared
        self._maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()  # each is alive as long as its views

    def vector(self, vector: np.ndarray) -> np.ndarray:
        """A read-only vector (P,) of the same numbers; mapped from a file if large."""
        stored = self._shared.keep({_VECTOR: vector})
        if not isinstance(stored, FileState):
            return vector
        self._maps.add(stored.content)
        return stored[_VECTOR]

    def reply(self, message: Message) -> Message:
        """A reply with its model in a file if large; called in clients' threads."""
        record = None if message.has_error() else entries(message.content).get(ARRAYS)
        if not isinstance(record, ArrayRecord):
            return message
        stored = self._shared.keep(from_record(record))
        if isinstance(stored, FileState):
            message.content = RecordDict({**entries(message.content), ARRAYS: to_record(stored)})
        return message

    def give_back(self) -> None:
        """Let the system drop the pages of stored arrays for now; they are read again when needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for content in list(self._maps):
                content.madvise(mmap.MADV_DONTNEED)
