"""Client's own account of a call: process, thread, intervals and their names.

    deserialise   read the states of the message
    load          find the windows, build the network, put the state into it, read c_i
    train         SGD, SCAFFOLD's and privacy's arithmetic
    evaluate      evaluate models
    serialise     keep c_i, make the reply

They are sent back as seconds, with the moment at which the call began: ten numbers. The clock is
`time.perf_counter`, which all processes of a machine share (Linux: CLOCK_MONOTONIC), so the server can lay
the parts beside its own phases (`fedge.timing.timeline`), each as one piece and in this order. Work
before the client's code is called and after it has returned, such as Ray's way to and from a worker, is not
in them.
"""

import sys
import threading
from collections.abc import Sequence
from time import perf_counter

from fedge.process.client_app import lasting_process

PARTS = ("deserialise", "load", "train", "evaluate", "serialise")
DESERIALISE, LOAD, TRAIN, EVALUATE, SERIALISE = range(len(PARTS))

# Where things stand in the numbers of a call: ids, when it began, seconds of each part, CUDA memory
PROCESS, THREAD, BEGAN = 0, 1, 2
FIRST_PART = 3
CUDA = FIRST_PART + len(PARTS)
NUMBERS = CUDA + 2

LARGEST = 2.0**53  # of a number of a call: process numbers are below, and so are seconds
_MIB = 2**20


class WorkClock:
    """Cuts one call of a client; made where it begins. Every moment is charged to one part."""

    def __init__(self) -> None:
        """Begin."""
        self._began = self._last = perf_counter()
        self._seconds = [0.0] * len(PARTS)

    def lap(self, part: int) -> None:
        """Charge the time since the last lap to one of `LOAD`, `TRAIN`, …"""
        now = perf_counter()
        self._seconds[part] += now - self._last
        self._last = now

    @property
    def seconds(self) -> float:
        """Seconds from the beginning to the last lap."""
        return self._last - self._began

    def finish(self) -> list[float]:
        """Charge the rest to "serialise" and return the call as numbers."""
        self.lap(SERIALISE)
        return [*_me.ids, self._began, *self._seconds, *cuda_mib()]


class _Me(threading.local):
    """This thread, asked for once."""

    def __init__(self) -> None:
        self.ids = (float(lasting_process()), float(threading.get_native_id()))


_me = _Me()


def cuda_mib() -> tuple[float, float]:
    """The peaks of MiB allocated and reserved by this process on its GPU since the last call.

    Zeros without a GPU. Other threads of the process may have used the GPU, too.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0.0, 0.0
    most = torch.cuda.max_memory_allocated() / _MIB, torch.cuda.max_memory_reserved() / _MIB
    torch.cuda.reset_peak_memory_stats()
    return most


def is_work(numbers: Sequence[object]) -> bool:
    """Whether a list has the form of a call, and numbers in range; their consistency is checked later.

    >>> [is_work([0.0] * NUMBERS), is_work([float("nan")] * NUMBERS), is_work([1e300] * NUMBERS)]
    [True, False, False]
    """
    fits = len(numbers) == NUMBERS and set(map(type, numbers)) == {float}
    return fits and all(0.0 <= number <= LARGEST for number in numbers)  # type: ignore[operator]
