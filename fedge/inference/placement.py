"""Choice among several models for a new person's windows, without labels.

A network with BatchNorm contains the mean and variance of its training windows at each layer; similar windows
give similar values. So

    misfit  the mean over all channels of all BatchNorm layers of the Kullback–Leibler divergence, in nats, of
            the normal distribution with the windows' mean and variance from the one carried by the network

is smallest for the model of similar people. Only the models are needed, and no data leave the person. A
network without BatchNorm is judged by its uncertainty: the mean entropy of its predictions, in nats; with
several classes per window, the sum over classes, each present or not. Predicted numbers have no entropy, so
networks predicting numbers need BatchNorm.

This detects people whose recordings differ (turned sensors, other devices), but not people who use a class
for something else, because their windows are the same. Fenoglio et al. 2025, FLUX (arXiv 2511.22305), solve
the same problem by comparing means and deviations of latent features between a newcomer and the centres of
clusters, with the same limit; here the models' own statistics replace those sent by clients. Statistics of
BatchNorm as a description of a domain: Li et al. 2016, Revisiting Batch Normalization For Practical Domain
Adaptation (arXiv 1603.04779). Shape letters: N windows, C channels, T samples.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fedge.config.registers.option import ConfigError
from fedge.inference.card import CLASS, NUMBERS
from fedge.inference.network import Classifier, probabilities

_LEAST = 1e-12  # of a variance or probability of which a logarithm is taken
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def input_misfit(classifier: Classifier, x: np.ndarray) -> float:
    """Misfit of raw windows to a model, in nats; 0 is perfect.

    Args:
        classifier: the model with its scaling.
        x: (N, C, T) or images (N, C, H, W), N ≥ 1, of one person.

    Raises:
        ConfigError: a network without BatchNorm predicts numbers.
    """
    norms = [layer for layer in classifier.network.modules() if _has_statistics(layer)]
    if not norms:
        return _entropy(probabilities(classifier, x), classifier.says)
    sums: dict[int, list[Tensor]] = {number: [] for number in range(len(norms))}
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, inputs, number=number: sums[number].append(_sums(inputs[0]))
        )
        for number, layer in enumerate(norms)
    ]
    try:
        probabilities(classifier, x)
    finally:
        for hook in hooks:
            hook.remove()
    parts = [_divergences(layer, sums[number]) for number, layer in enumerate(norms) if sums[number]]
    return float(torch.cat(parts).mean())


def _entropy(predictions: np.ndarray, says: str) -> float:
    """Mean entropy of predictions (N, classes, …), in nats."""
    if says == NUMBERS:
        raise ConfigError(
            "--fit compares models by BatchNorm's statistics, or by how sure they are of classes, but these "
            "predict numbers without BatchNorm; choose a model by --leaf or --client"
        )
    shares = (predictions,) if says == CLASS else (predictions, 1 - predictions)
    summed = sum((share * np.log(np.maximum(share, _LEAST))).sum(axis=1) for share in shares)
    return float(-np.mean(summed))


def best_fit(misfits: Sequence[float]) -> int:
    """Index of the best-fitting model: the first with the smallest misfit; NaN and ∞ never do.

    >>> best_fit([0.5, float("nan"), 0.25, 0.25])
    2
    """
    return int(np.argmin(np.where(np.isfinite(misfits), misfits, np.inf)))


def _has_statistics(layer: nn.Module) -> bool:
    return isinstance(layer, _NORMS) and layer.running_mean is not None


def _sums(inputs: Tensor) -> Tensor:
    """Per channel: number, sum and sum of squares of the values entering a layer, (3, C)."""
    flat = inputs.double().movedim(1, 0).flatten(1)
    count = torch.full((len(flat),), flat.shape[1], dtype=torch.float64)
    return torch.stack([count, flat.sum(dim=1), flat.square().sum(dim=1)])


def _divergences(layer: nn.Module, sums: Sequence[Tensor]) -> Tensor:
    """(C,) the divergence of a layer's input from its statistics, channel by channel."""
    count, total, squares = torch.stack(list(sums)).sum(dim=0)
    mean = total / count
    variance = torch.clamp(squares / count - mean.square(), min=_LEAST)
    assert isinstance(layer.running_mean, Tensor)
    assert isinstance(layer.running_var, Tensor)
    expected = torch.clamp(layer.running_var.double(), min=_LEAST)
    squared_distance = (mean - layer.running_mean.double()).square()
    return ((variance + squared_distance) / expected - 1 - torch.log(variance / expected)) / 2
