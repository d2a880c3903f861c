"""A loss, and a score from the sums of a task."""

import torch.nn.functional as F

from fedge.tasks import Score


def focal(answers, y, gamma=2.0):
    """Focal loss (Lin et al. 2017) of logits (N, classes): well-classified windows count less."""
    right = F.log_softmax(answers, dim=1).gather(1, y[:, None])[:, 0]
    return -((1 - right.exp()) ** gamma) * right


def _recall(sums):
    confusion = sums["confusion"]  # (classes, classes): rows true, columns predicted
    return (confusion.diagonal() / confusion.sum(axis=1).clip(1)).mean()


balanced_accuracy = Score(
    "balanced_accuracy", _recall, higher_is_better=True, unit="share", lowest=0, highest=1
)
