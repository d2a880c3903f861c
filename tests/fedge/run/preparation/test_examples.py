"""A few examples of the data: of the run, scaled, or made up of the right kind."""

import numpy as np
import pytest

from fedge.config.sections.train import TrainConfig
from fedge.data.prepared import DataShape, shape_of
from fedge.run.preparation.examples import examples_of
from fedge.tasks.configured import refuse_task_that_fails
from fedge.tasks.regression import Regression
from hhar.windows.window_file import Windows


def windows(x, y, outputs, channels=()):
    """Windows of one user."""
    return Windows(x, y, np.full(len(x), "a"), None, None, tuple(map(str, range(outputs))), channels)


def test_they_are_windows_of_the_run_scaled():
    some = windows(np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2, 2, ("a", "b"))
    x, y = examples_of(shape_of(some), some, TrainConfig())
    assert (x.shape, x.dtype, y.tolist()) == (
        (10, 2),
        np.float32,
        (np.linspace(0, 19, 10).astype(int) % 2).tolist(),
    )
    assert abs(float(x.mean())) < 1e-6


def test_tokens_stay_as_they_are():
    some = windows(np.arange(60).reshape(20, 3), np.zeros((20, 3), np.int64), 60)
    shape = shape_of(some)
    x, y = examples_of(shape, some, TrainConfig())
    assert shape == DataShape((3,), 60, y_shape=(3,), tokens=True)
    assert x.dtype == np.int64
    assert x.max() == 59
    assert y.shape == (10, 3)


def test_where_others_own_them_they_are_made_up():
    x, y = examples_of(
        DataShape((4,), 2, y_shape=(2,), y_dtype="float32"), None, TrainConfig(task="regression")
    )
    assert (x.shape, y.shape, y.dtype) == ((10, 4), (10, 2), np.float32)
    x, y = examples_of(DataShape((4,), 7, y_shape=(4,), tokens=True), None, TrainConfig(task="sequence"))
    assert (x.dtype, x.max(), y.min(), y.max()) == (np.int64, 0, 0, 6)


class Counts(Regression):
    """Whole numbers from `least` on alone."""

    def __init__(self, least=0):
        self.least = least

    def refuse(self, y, outputs):
        if (y < self.least).any() or (y % 1).any():
            raise ValueError("y must be counts")

    def losses(self, answers, y, smoothing=0.0):
        assert (y >= self.least).all()
        return super().losses(answers, y, smoothing)


@pytest.mark.parametrize("least", [0, 1])
def test_made_up_targets_are_some_that_the_task_takes(least):
    """A task of counts fails on negative numbers, and would be refused where clients own the windows."""
    train = TrainConfig(task=f"{__name__}:Counts", task_args=f'{{"least": {least}}}')
    _, y = examples_of(DataShape((4,), 1, y_dtype="float32"), None, train)
    assert set(y.tolist()) == {float(least), least + 1.0, least + 2.0}
    refuse_task_that_fails(train, 1, y)


@pytest.mark.parametrize("outputs", [1, 2, 6])
def test_made_up_targets_of_several_classes_are_yes_or_no(outputs):
    shape = DataShape((4,), outputs, y_shape=(outputs,))
    assert examples_of(shape, None, TrainConfig(task="multilabel"))[1].max() == (outputs > 1) * 1


@pytest.mark.parametrize("row", [0, 7, 19])
def test_the_largest_token_is_in_the_first_example(row):
    """Wherever it is, so that a network is tried on it before the run."""
    x = np.arange(60).reshape(20, 3)
    x[row, 1] = 99
    some = windows(x, np.zeros((20, 3), np.int64), 100)
    assert examples_of(shape_of(some), some, TrainConfig())[0][0].max() == 99
