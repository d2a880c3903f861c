"""Shares of a batch: the windows of each process, and the weight of its mean loss.

If process r takes b_r of the B windows in a batch, the sum over processes of (b_r / B) × (mean loss of its
windows) is the mean loss of the batch. So the sum of their gradients is the gradient of the whole batch,
however uneven the shares are.
"""

from dataclasses import dataclass
from typing import Any


def rows_of_process(batch: int, rank: int, processes: int) -> slice:
    """Windows of a batch for process `rank` (0, 1, …), in shares of nearly equal size.

    >>> [rows_of_process(7, rank, 3) for rank in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    >>> [rows_of_process(1, rank, 2) for rank in range(2)]
    [slice(0, 0, None), slice(0, 1, None)]
    """
    return slice(rank * batch // processes, (rank + 1) * batch // processes)


@dataclass
class ProcessRank:
    """Rank of a process among those of a client.

    Attributes:
        rank: number of the process, 0 … size − 1.
        size: number of processes.
        counts: whether it has windows of the current batch. If not, it computes another window's forward and
            backward pass with weight 0, because the other processes wait for it.
    """

    rank: int
    size: int
    counts: bool = True

    def __deepcopy__(self, memo: dict[int, Any]) -> "ProcessRank":
        """The same object: copies of a network's attributes (`Unsaved`) still follow the current batch."""
        return self
