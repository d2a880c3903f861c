"""Shares of a batch: the windows of each process, and the weight of its mean loss.

With B windows in a batch, of which process r takes b_r, the sum over processes of (b_r / B) × (mean loss of
its windows) is the mean loss of the batch. So the sum of their gradients is the gradient of the whole batch,
however uneven shares are.
"""

from dataclasses import dataclass


def own_rows(batch: int, rank: int, processes: int) -> slice:
    """Windows of a batch for process `rank` (0, 1, …): shares as equal and as early as can be.

    >>> [own_rows(7, rank, 3) for rank in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    >>> [own_rows(1, rank, 2) for rank in range(2)]
    [slice(0, 0, None), slice(0, 1, None)]
    """
    return slice(rank * batch // processes, (rank + 1) * batch // processes)


@dataclass
class ProcessSeat:
    """One process among those of a client.

    Attributes:
        rank: its number, 0 … size − 1.
        size: how many there are.
        counts: whether it has windows of the present batch. One without takes a window of another for its
            forward and backward pass, in which the others wait for it, and gives that no weight.
    """

    rank: int
    size: int
    counts: bool = True
