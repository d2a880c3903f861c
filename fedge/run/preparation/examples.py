"""A few examples of a run's data, for trials of models, tasks and methods before the run starts."""

import numpy as np

from fedge.config.registers.failing import own_errors
from fedge.config.sections.train import TrainConfig
from fedge.data.prepared import DataShape, as_float
from fedge.tasks.configured import task_of
from fedge.tasks.task import Task
from hhar.windows.window_file import Windows

EXAMPLES = 10


def examples_of(
    shape: DataShape, windows: Windows | None, train: TrainConfig
) -> tuple[np.ndarray, np.ndarray]:
    """x (10, …) and y (10, …): evenly spaced windows of the run, or generated ones if clients own theirs.

    Of tokens, the first window holds the largest: an embedding has a row for each token up to some number.

    Args:
        shape: sizes of the data.
        windows: the run's windows, scaled by the mean and spread of these ten; None if clients own them.
        train: options of the run's training, whose task accepts generated y.
    """
    if windows is None:
        return _generated_x(shape), _generated_y(shape, train)
    rows = np.linspace(0, len(windows.y) - 1, EXAMPLES).astype(np.int64)
    if shape.tokens:
        rows[0] = windows.x.argmax() // np.prod(windows.x.shape[1:])
    x, y = np.array(windows.x[rows]), np.array(windows.y[rows])
    if shape.tokens:
        return x, y
    x = as_float(x)
    spread = x.std() if x.std() > 0 else 1.0
    return ((x - x.mean()) / spread).astype(np.float32), y


def _generated_x(shape: DataShape) -> np.ndarray:
    """x (10, …): standard normal noise, or token 0."""
    size = (EXAMPLES, *shape.input_shape)
    if shape.tokens:
        return np.zeros(size, dtype=np.int64)
    return np.random.default_rng(0).standard_normal(size).astype(np.float32)


def _generated_y(shape: DataShape, train: TrainConfig) -> np.ndarray:
    """y (10, …), the first accepted by the task: its targets may be counts, or numbers above 0."""
    size = (EXAMPLES, *shape.y_shape)
    numbers = np.arange(np.prod(size)).reshape(size)
    even = numbers / numbers.size
    by_class = [numbers % shape.classes, numbers % 2, numbers * 0, numbers * 0 + 1]
    of_numbers = [even * 2 - 1, even, numbers % 3, numbers % 2, 1 - even, numbers % 3 + 1]
    kinds = by_class if shape.y_dtype == "int64" else [targets.astype(np.float32) for targets in of_numbers]
    task = task_of(train)
    return next((y for y in kinds if _accepts(task, y, shape.classes)), kinds[0])


def _accepts(task: Task, y: np.ndarray, outputs: int) -> bool:
    """Whether a task accepts targets (10, …)."""
    try:
        task.refuse(y, outputs)
    except own_errors():  # a user's task may raise any of them
        return False
    return True
