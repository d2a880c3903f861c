"""Inputs and outputs of a model, for the data and the task of a run."""

from fedge.config.registers.parts import TASKS
from fedge.config.registers.traits import LABELS
from fedge.config.sections.train import TrainConfig
from fedge.tasks.configured import task_of
from fedge.training.networks.own_models import OwnFit


def fit_of(config: TrainConfig, outputs: int, y_shape: tuple[int, ...], *, tokens: bool) -> OwnFit:
    """Type of input and shape of output required of a run's model.

    Args:
        config: its task is read.
        outputs: U.
        y_shape: shape of the y of one example.
        tokens: inputs are int64.

    >>> fit_of(TrainConfig(task="sequence"), 27, (16,), tokens=True)
    OwnFit(tokens=True, answer=(27, 16), word='answers')
    """
    word = "logits" if TASKS.has(config.task, LABELS) else "answers"
    with TASKS.explaining_errors(config.task):
        return OwnFit(tokens, tuple(task_of(config).answer_shape(outputs, y_shape)), word)
