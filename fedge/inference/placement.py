"""Choice among several models for somebody's windows, without labels.

Somebody new has windows and no labels. A network with BatchNorm contains the mean and variance of its
training windows at each layer; windows like those give the same ones. So

    misfit  the mean over all channels of all BatchNorm layers of the Kullback–Leibler divergence, in nats, of
            the normal distribution with the windows' mean and variance from that which the network carries

is smallest for the model of people like this one. Nothing but the models is needed, and nothing of the
windows leaves its owner. A network without BatchNorm is judged by how unsure it is: the mean entropy
of its predictions, in nats; of several classes the sum over classes, each present or not. Numbers are never
unsure, so networks that predict them need BatchNorm.

It sees users recorded otherwise (sensors turned, other devices), not users who mean something else by a
class: their windows are the same. The question is that of Fenoglio et al. 2025, FLUX (arXiv 2511.22305), who
compare means and deviations of latent features between a newcomer and the centres of clusters, and are as
blind to that; here the models' own statistics stand in for those that clients would have to send. Statistics
of BatchNorm as a description of a domain: Li et al. 2016, Revisiting Batch Normalization For Practical Domain
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
    """How badly raw windows fit a model, in nats; 0 is perfect.

    Args:
        classifier: the model with its scaling.
        x: (N, C, T) or images (N, C, H, W), N ≥ 1, of one person.

    Raises:
        ConfigError: a network without BatchNorm predicts numbers.
    """
    norms = [layer for layer in classifier.network.modules() if _carries_statistics(layer)]
    if not norms:
        return _entropy(probabilities(classifier, x), classifier.says)
    seen: dict[int, list[Tensor]] = {number: [] for number in range(len(norms))}
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, inputs, number=number: seen[number].append(_sums(inputs[0]))
        )
        for number, layer in enumerate(norms)
    ]
    try:
        probabilities(classifier, x)
    finally:
        for hook in hooks:
            hook.remove()
    parts = [_divergences(layer, seen[number]) for number, layer in enumerate(norms) if seen[number]]
    return float(torch.cat(parts).mean())


def _entropy(found: np.ndarray, says: str) -> float:
    """Mean entropy of predictions (N, classes, …), in nats."""
    if says == NUMBERS:
        raise ConfigError(
            "--fit compares models by BatchNorm's statistics, or by how sure they are of classes, but these "
            "predict numbers without BatchNorm; choose a model by --leaf or --client"
        )
    shares = (found,) if says == CLASS else (found, 1 - found)
    summed = sum((share * np.log(np.maximum(share, _LEAST))).sum(axis=1) for share in shares)
    return float(-np.mean(summed))


def best_fit(misfits: Sequence[float]) -> int:
    """Index of the model that fits best: the first with the smallest misfit; NaN and ∞ never do.

    >>> best_fit([0.5, float("nan"), 0.25, 0.25])
    2
    """
    return int(np.argmin(np.where(np.isfinite(misfits), misfits, np.inf)))


def _carries_statistics(layer: nn.Module) -> bool:
    return isinstance(layer, _NORMS) and layer.running_mean is not None


def _sums(entering: Tensor) -> Tensor:
    """Per channel: number, sum and sum of squares of the values that enter a layer, (3, C)."""
    flat = entering.double().movedim(1, 0).flatten(1)
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
    apart = (mean - layer.running_mean.double()).square()
    return ((variance + apart) / expected - 1 - torch.log(variance / expected)) / 2
