"""Distance between two model states."""

import numpy as np

from fedge.states.averaging import State, batches

_BLOCK = 2**16  # numbers per step, within the processor's cache


def update_norm(state: State, model: State) -> float:
    """The L2 norm of (state − model) over all floating-point entries, summed in float64.

    Infinite if its square is too large for float64.
    """
    total = 0.0
    buffer = np.empty(_BLOCK, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for batch in batches(model):
            for name, span in batch.items():
                if not np.issubdtype(model[name].dtype, np.floating):
                    continue
                end, start = state[name].reshape(-1)[span], model[name].reshape(-1)[span]
                for first in range(0, end.size, _BLOCK):
                    block = slice(first, first + _BLOCK)
                    difference = buffer[: end[block].size]
                    np.subtract(end[block], start[block], out=difference, dtype=np.float64)
                    np.multiply(difference, difference, out=difference)
                    total += float(difference.sum())
    return float(np.sqrt(total))
