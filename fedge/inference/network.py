"""A network with pre- and postprocessing: raw windows in, probabilities or predicted numbers out."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fedge.data.prepared import as_float
from fedge.inference.card import CLASS, NUMBERS

_BATCH = 256


class Classifier(nn.Module):
    """Scales raw windows as in training, and turns logits into probabilities.

    Attributes:
        network: raw windows are scaled, then passed on.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        input_shape: Sequence[int],
        mean: Sequence[float],
        std: Sequence[float],
        dtype: str,
        says: str = CLASS,
    ) -> None:
        """Add scaling to a network, in evaluation mode and without gradients.

        Args:
            network: takes windows as clients do.
            input_shape: (C, T) or (C, H, W).
            mean: mean of each channel; empty without scaling.
            std: likewise.
            dtype: dtype of raw windows; "uint8" is divided by 255.
            says: kind of answers, see `fedge.inference.card.Card`.
        """
        super().__init__()
        shape = (-1, *[1] * (len(input_shape) - 1))
        self.network = network
        self.scales = bool(mean)
        self.divides = dtype == "uint8"
        self.says = says
        self.register_buffer("mean", torch.tensor(mean or [0.0], dtype=torch.float32).reshape(shape))
        self.register_buffer("std", torch.tensor(std or [1.0], dtype=torch.float32).reshape(shape))
        self.eval()
        self.requires_grad_(False)  # an exported file's answers then become arrays as they are

    def forward(self, x: Tensor) -> Tensor:
        """Raw windows (N, C, …) to probabilities (N, classes), or the model's other answers."""
        return self.of_floats(x.float() / 255.0 if self.divides else x)

    def of_floats(self, x: Tensor) -> Tensor:
        """Raw windows (N, C, …), brightness from 0 to 1, to the result of `forward`."""
        if self.scales:
            x = (x - self.mean) / self.std
        answers: Tensor = self.network(x)
        if self.says == CLASS:
            return torch.softmax(answers, dim=1)
        return answers if self.says == NUMBERS else torch.sigmoid(answers)


def probabilities(classifier: Classifier, x: np.ndarray) -> np.ndarray:
    """The probability of each class for raw windows, or the learned numbers.

    Args:
        classifier: any.
        x: (N, C, …), uint8 or float32; uint8 is brightness for every classifier.

    Returns:
        float32 (N, classes); rows sum to 1 where an answer is one class; (N, classes, …) at positions.
    """
    outputs = []
    with torch.no_grad():
        for start in range(0, len(x), _BATCH):
            part = np.ascontiguousarray(as_float(x[start : start + _BATCH]))
            outputs.append(classifier.of_floats(torch.from_numpy(part)).numpy())
    return np.concatenate(outputs) if outputs else np.empty((0, 0), np.float32)
