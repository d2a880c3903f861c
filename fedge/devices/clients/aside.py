"""Large vectors and results put aside in files, from which the system maps the parts in use.

On the virtual clock many models live at a time: each version still in training, each buffered update, each
early result. Beyond `transfer.spill-above-mb` they are in files of the run folder (`fedge.states.shared`),
removed after the last use.
"""

import mmap
import weakref

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from fedge.exchange.content import ARRAYS
from fedge.states.files import FileState
from fedge.states.records import entries, from_record, to_record
from fedge.states.shared import SharedStates

_VECTOR = "vector"


class Aside:
    """Puts large arrays aside; small ones, and those without room on disk, stay in memory."""

    def __init__(self, shared: SharedStates) -> None:
        """Put into these files, which `SharedStates.prepare` has said are wanted or not."""
        self._shared = shared
        self._maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()  # each lives as long as its views

    def vector(self, vector: np.ndarray) -> np.ndarray:
        """A vector (P,), read-only, with the same numbers; mapped from a file if large."""
        kept = self._shared.keep({_VECTOR: vector})
        if not isinstance(kept, FileState):
            return vector
        self._maps.add(kept.content)
        return kept[_VECTOR]

    def reply(self, message: Message) -> Message:
        """A reply with its model in a file if large; called by threads of clients."""
        record = None if message.has_error() else entries(message.content).get(ARRAYS)
        if not isinstance(record, ArrayRecord):
            return message
        kept = self._shared.keep(from_record(record))
        if isinstance(kept, FileState):
            message.content = RecordDict({**entries(message.content), ARRAYS: to_record(kept)})
        return message

    def give_back(self) -> None:
        """Tell the system that stored arrays are unused for now; they come again when touched."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for content in list(self._maps):
                content.madvise(mmap.MADV_DONTNEED)
