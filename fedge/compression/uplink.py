"""Uploads of models: updates are compressed and decoded, and errors are fed back."""

import math
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from fedge.compression.compressor import Compressor
from fedge.seeding import Purpose, numpy_stream
from fedge.states.averaging import State


@dataclass(frozen=True)
class Upload:
    """A model as it arrives, and the remainder.

    Attributes:
        state: model as decoded by the receiver.
        memory: name → unsent remainder, for the sender's next update; empty without feedback.
    """

    state: State = field(repr=False)
    memory: State = field(repr=False)


class Uplink:
    """Senders of one tier, and their code.

    With x the received model, y the trained one, e the sender's memory and C the code, the receiver has x +
    C(y − x + e), and the memory becomes y − x + e − C(y − x + e), including the rounding of the receiver's
    sum: received updates and memory sum to all updates.

    Source: Karimireddy et al. 2019, algorithm 2; without feedback e is 0 and is forgotten.
    """

    def __init__(self, compressor: Compressor, purpose: Purpose, names: Collection[str]) -> None:
        """Store the code, and the names of compressed entries; others are sent unchanged.

        Args:
            compressor: code of one array.
            purpose: purpose of its random streams.
            names: of trainable entries: a coarse value would violate the bounds of layer statistics.
        """
        self._compressor, self._purpose = compressor, purpose
        self._names = frozenset(names)
        self.keeps_feedback = compressor.keeps_feedback

    def upload(
        self, base: State, model: State, memory: State, seed: int, *stream: int, remembers: bool = True
    ) -> Upload:
        """The sender's model as decoded by the receiver.

        Args:
            base: model received by the sender, known to the receiver.
            model: model to be sent; its entries are among those of `base`.
            memory: memory of the sender; empty for none yet.
            seed: root of the random streams.
            stream: key of sender and round in these streams.
            remembers: whether the memory is added and updated; comparison lines leave it unchanged.
        """
        keeps = self.keeps_feedback and remembers
        state, errors = {}, {}
        for name, array in model.items():
            if not self._is_compressed(name, array):
                state[name] = array
                continue
            update = array.astype(np.float64) - base[name]
            if keeps and name in memory:
                update += memory[name]
            rng = numpy_stream(seed, self._purpose, *stream, zlib.crc32(name.encode()))
            decoded = self._compressor.sent(_read_only(update), rng).reshape(array.shape)
            state[name] = (base[name] + decoded).astype(array.dtype)
            if keeps:
                errors[name] = (update - (state[name].astype(np.float64) - base[name])).astype(array.dtype)
        return Upload(state, errors)

    def sent_bytes(self, state: State) -> int:
        """Bytes of a compressed model of this form, independent of its values."""
        return sum(
            math.ceil(self._compressor.bits(array.size) / 8)
            if self._is_compressed(name, array)
            else array.nbytes
            for name, array in state.items()
        )

    def _is_compressed(self, name: str, array: np.ndarray) -> bool:
        """Whether an entry is compressed."""
        return name in self._names and array.size > 0 and np.issubdtype(array.dtype, np.floating)


def _read_only(update: np.ndarray) -> np.ndarray:
    """An update as one axis, not to be written to: the remainder would follow from what was written."""
    flat = update.reshape(-1).view()
    flat.flags.writeable = False
    return flat
