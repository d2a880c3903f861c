"""Remark on a user's network returning probabilities to a loss meant for logits."""

from fedge.config.registers.parts import MODELS, OF_THE_TASK
from fedge.data.prepared import DataShape
from fedge.run.build import RunPlan, network_of
from fedge.tasks.configured import task_of
from fedge.training.networks.probabilities import last_function

_APPLIED = {"class": "softmax", "classes": "a sigmoid"}  # kind of answer → function within the task's loss


def logits_remark(plan: RunPlan, shape: DataShape) -> str:
    """One line if a user's network ends with softmax or a sigmoid, although its loss applies one; else empty.

    Such a network trains, but slowly and to lower scores, so it is easily mistaken for a weak method.
    """
    train = plan.config.train
    if not MODELS.is_own(train.model) or train.loss != OF_THE_TASK:
        return ""
    applied = _APPLIED.get(task_of(train).says)
    ends = last_function(network_of(plan, shape), shape.input_shape, shape.tokens) if applied else ""
    if not ends:
        return ""
    return (
        f"train.model {train.model} seems to end with {ends}, but the loss of train.task {train.task} takes "
        f"logits and applies {applied} itself; return logits from forward"
    )
