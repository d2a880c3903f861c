"""A client's measurement of one call: process, thread, and seconds by part.

    deserialise   read the states of the message
    load          find the windows, build the network, load the state, read c_i
    train         SGD, with the arithmetic of SCAFFOLD and privacy
    evaluate      evaluate models
    serialise     store c_i, make the reply

A reply carries them as seconds, with the start of the call: ten numbers. The clock is `time.perf_counter`,
which all processes of a machine share (Linux: CLOCK_MONOTONIC), so the server can align the parts with its
own phases (`fedge.timing.timeline`), each as one piece and in this order. Work before the client's code is
called, or after it has returned, such as Ray's transfer to and from a worker, is not included.
"""

import sys
import threading
from collections.abc import Sequence
from time import perf_counter

from fedge.process.client_app import lasting_process

PARTS = ("deserialise", "load", "train", "evaluate", "serialise")
DESERIALISE, LOAD, TRAIN, EVALUATE, SERIALISE = range(len(PARTS))

# Layout of a call's numbers: ids, start, seconds of each part, CUDA memory
PROCESS, THREAD, BEGAN = 0, 1, 2
FIRST_PART = 3
CUDA = FIRST_PART + len(PARTS)
NUMBERS = CUDA + 2

LARGEST = 2.0**53  # limit of a call's numbers: process numbers are below, and so are seconds
_MIB = 2**20


class WorkClock:
    """Splits one call of a client, from its creation on; every moment is charged to one part."""

    def __init__(self) -> None:
        """Start."""
        self._began = self._last = perf_counter()
        self._seconds = [0.0] * len(PARTS)

    def lap(self, part: int) -> None:
        """Charge the time since the last lap to one of `LOAD`, `TRAIN`, …"""
        now = perf_counter()
        self._seconds[part] += now - self._last
        self._last = now

    @property
    def seconds(self) -> float:
        """Seconds from the start to the last lap."""
        return self._last - self._began

    def finish(self) -> list[float]:
        """Charge the rest to "serialise" and return the call as numbers."""
        self.lap(SERIALISE)
        return [*_this_thread.ids, self._began, *self._seconds, *cuda_mib()]


class _ThreadIds(threading.local):
    """Ids of this thread, looked up once."""

    def __init__(self) -> None:
        self.ids = (float(lasting_process()), float(threading.get_native_id()))


_this_thread = _ThreadIds()


def cuda_mib() -> tuple[float, float]:
    """Peak MiB allocated and reserved by this process on its GPU since the last call.

    Zeros without a GPU. Other threads of the process may have contributed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0.0, 0.0
    peak = torch.cuda.max_memory_allocated() / _MIB, torch.cuda.max_memory_reserved() / _MIB
    torch.cuda.reset_peak_memory_stats()
    return peak


def is_well_formed_call(numbers: Sequence[object]) -> bool:
    """Whether a list has the form of a call, and numbers in range; their consistency is checked later.

    >>> [is_well_formed_call([number] * NUMBERS) for number in (0.0, float("nan"), 1e300)]
    [True, False, False]
    """
    is_well_formed = len(numbers) == NUMBERS and set(map(type, numbers)) == {float}
    return is_well_formed and all(0.0 <= number <= LARGEST for number in numbers)  # type: ignore[operator]
