"""A few examples of a run's data, for trials of models, tasks and methods before the run starts."""

import numpy as np

from fedge.data.prepared import DataShape, as_float
from hhar.windows.window_file import Windows

EXAMPLES = 10


def examples_of(shape: DataShape, windows: Windows | None) -> tuple[np.ndarray, np.ndarray]:
    """x (10, …) and y (10, …): evenly spaced windows of the run, or generated ones where clients own theirs.

    Args:
        shape: sizes of the data.
        windows: the run's windows, scaled by the mean and spread of these ten; None where clients own them.
    """
    if windows is None:
        return _made_up(shape)
    at = np.linspace(0, len(windows.y) - 1, EXAMPLES).astype(np.int64)
    x, y = np.array(windows.x[at]), np.array(windows.y[at])
    if shape.tokens:
        return x, y
    x = as_float(x)
    spread = x.std() if x.std() > 0 else 1.0
    return ((x - x.mean()) / spread).astype(np.float32), y


def _made_up(shape: DataShape) -> tuple[np.ndarray, np.ndarray]:
    """x: standard normal noise, or token 0. y: each class in turn, or evenly spaced in [-1, 1)."""
    rng = np.random.default_rng(0)
    size = (EXAMPLES, *shape.y_shape)
    numbers = np.arange(np.prod(size)).reshape(size)
    y = (
        numbers % shape.classes
        if shape.y_dtype == "int64"
        else (numbers / numbers.size * 2 - 1).astype(np.float32)
    )
    if shape.tokens:
        return np.zeros((EXAMPLES, *shape.input_shape), dtype=np.int64), y
    return rng.standard_normal((EXAMPLES, *shape.input_shape)).astype(np.float32), y
