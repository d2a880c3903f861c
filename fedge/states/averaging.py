"""Averages of model states: at a leaf over its clients, at the cloud over the leaves of a cluster.

A state maps names to arrays. Pure functions; they import nothing of Flower or torch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from fedge.process.resources.threads import in_threads

State = Mapping[str, np.ndarray]  # name → array, of any shape and dtype, in the order of torch's `state_dict`

_LOOKUP = 2**20  # numbers of an entry per lookup
_STEP = 2**16  # numbers per step, within the processor's cache


def weighted_mean(states: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float]) -> State:
    """Average K model states entry by entry.

    Sums in float64 in the order given, then casts back, so equal inputs in equal order give equal bits.
    Entries of other types than floating point (step counters) are copied from the first state. Large states
    are cut into parts for several threads, which changes no bit, and their entries are looked up for every
    part, so a state mapped from a file can release the rest.

    Args:
        states: K mappings, name → array; names, shapes and dtypes agree.
        weights: K non-negative numbers on any common scale, e.g. window counts.

    Raises:
        ValueError: K is zero, the lengths differ, names or shapes differ, or the weights do not sum to a
            positive finite number.

    Source: McMahan et al. 2017, Algorithm 1, server update: Σ_k n_k w_k / Σ_k n_k.

    >>> mean = weighted_mean([{"w": np.array([0.0, 4.0])}, {"w": np.array([4.0, 0.0])}], weights=[3, 1])
    >>> mean["w"]
    array([1., 3.])
    """
    shares = _shares(len(states), weights)
    first = states[0]
    for index, state in enumerate(states[1:], start=1):
        if state.keys() != first.keys():
            raise ValueError(
                f"state {index} has other entries than state 0: {sorted(state.keys() ^ first.keys())}"
            )
    mean = {name: _result_entry(states, name) for name in first}
    floating = {name: entry for name, entry in mean.items() if np.issubdtype(entry.dtype, np.floating)}

    def work(batch: dict[str, slice]) -> None:
        for name, span in batch.items():
            _mean_into(
                mean[name].reshape(-1)[span], [state[name].reshape(-1)[span] for state in states], shares
            )

    for_each_part(work, floating)
    return mean


def for_each_part(work: Callable[[dict[str, slice]], None], state: State, most: int = _LOOKUP) -> None:
    """Call `work` with every part of a state, as `batches` cuts it: on several threads if the state is large.

    Parts do not overlap, so no bit depends on the order; calls must not be nested.
    """
    parts = batches(state, most)
    if is_large(state):
        in_threads(work, list(parts))
    else:
        for batch in parts:
            work(batch)


def is_large(state: State) -> bool:
    """Whether work on a state is worth several threads: from about a million numbers on."""
    return sum(array.size for array in state.values()) > _LOOKUP


def batches(state: State, most: int = _LOOKUP) -> Iterator[dict[str, slice]]:
    """Cut a state into parts of at most `most` numbers: name → slice of the flattened entry.

    For work entry by entry with intermediate results too large for memory at once.
    """
    batch: dict[str, slice] = {}
    used = 0
    for name, size in [(name, array.size) for name, array in state.items()]:
        for start in range(0, max(size, 1), most):
            count = min(size - start, most)
            if used + count > most:
                yield batch
                batch, used = {}, 0
            batch[name] = slice(start, start + count)
            used += count
    if batch:
        yield batch


def part_of(state: State, batch: Mapping[str, slice]) -> dict[str, np.ndarray]:
    """A part of a state: name → flattened slice (n,) of the entry, in its dtype."""
    return {name: state[name].reshape(-1)[span] for name, span in batch.items()}


def _shares(count: int, weights: Sequence[float]) -> np.ndarray:
    """The weights divided by their sum (float64), or raise ValueError."""
    values = np.asarray(weights, dtype=np.float64)
    if count == 0 or values.shape != (count,):
        raise ValueError(
            f"need one weight per state and at least one state, got {count} states, {len(weights)} weights"
        )
    total = values.sum()
    if not np.isfinite(total) or total <= 0 or (values < 0).any():
        raise ValueError(f"weights must be non-negative with a positive finite sum, got {list(weights)}")
    shares: np.ndarray = values / total
    return shares


def _result_entry(states: Sequence[State], name: str) -> np.ndarray:
    """An array for the mean of an entry, or the copy for other types than floating point."""
    first = states[0][name]
    kinds = [(array.shape, array.dtype) for array in (state[name] for state in states)]
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError(f"entry {name!r} has different shapes or dtypes: {[(s, str(d)) for s, d in kinds]}")
    return np.empty(first.shape, first.dtype) if np.issubdtype(first.dtype, np.floating) else first.copy()


def _mean_into(mean: np.ndarray, arrays: Sequence[np.ndarray], shares: np.ndarray) -> None:
    """Write Σ share·array of flat arrays into `mean`."""
    total, term = np.empty((2, min(_STEP, mean.size)), np.float64)
    for start in range(0, mean.size, _STEP):
        span = slice(start, start + _STEP)
        count = len(mean[span])
        sum_, product = total[:count], term[:count]
        sum_[...] = arrays[0][span]
        sum_ *= shares[0]  # not added to zeros: 0.0 + -0.0 would lose a sign
        for array, share in zip(arrays[1:], shares[1:], strict=True):
            product[...] = array[span]
            product *= share
            sum_ += product
        mean[span] = sum_
