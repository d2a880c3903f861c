"""Descriptions of a client's windows: means and deviations of latent features, class by class.

The features before the network's last linear layer are projected to as many directions as classes, U. The
directions are the same at every client and depend on no data: the leading principal components of 200 points
drawn uniformly from a cube, with a seed of their own. A *description* is

    d = (μ, σ, μ_1, σ_1, …, μ_U, σ_U)

of all windows and of those of each class, U numbers each; 0 for a class without windows. Source:
Fenoglio, Li, Barbiero, Lane, Langheinrich, Gjoreski 2025, FLUX (arXiv 2511.22305), as its code makes it
(`public/models.py`). There the cube ends at the largest feature, which shifts all descriptions alike.
"""

import numpy as np
import torch
from torch import Tensor, nn

_POINTS, _SEED, _BATCH = 200, 1, 512


def length_of(classes: int) -> int:
    """Length of a description.

    >>> length_of(10)
    220
    """
    return 2 * (classes + 1) * classes


def window_description(model: nn.Module, x: Tensor, y: Tensor, classes: int) -> list[float]:
    """The description of windows by a model, computed in evaluation mode.

    Args:
        model: model on any device; without a linear layer, the logits are the features.
        x: float32 (N, C, T) or (N, C, H, W).
        y: int64 (N); for tasks without classes, all windows are one class.
        classes: U.
    """
    features = _extract_features(model, x)
    labels = y.numpy() if y.dim() == 1 and y.dtype == torch.int64 else np.zeros(len(y), dtype=np.int64)
    return description_of(features @ directions(features.shape[1], classes), labels, classes).tolist()


def directions(size: int, count: int) -> np.ndarray:
    """(size, count) orthonormal directions, the same everywhere; 0 beyond `size`."""
    points = np.random.Generator(np.random.PCG64(_SEED)).uniform(size=(_POINTS, size))
    components = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2][:count]
    basis = np.zeros((size, count))
    basis[:, : len(components)] = components.T
    return basis


def description_of(projected: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """The description of projected features (N, U) with labels (N,): float64, `length_of` numbers."""
    parts = [projected.mean(axis=0), projected.std(axis=0)]
    for label in range(classes):
        of_class = projected[labels == label]
        zeros = np.zeros(projected.shape[1])
        parts += [of_class.mean(axis=0), of_class.std(axis=0)] if len(of_class) else [zeros, zeros]
    return np.concatenate(parts)


def _extract_features(model: nn.Module, x: Tensor) -> np.ndarray:
    """Input of the last linear layer, float64 (N, features)."""
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    features: list[Tensor] = []
    hook = (
        linear[-1].register_forward_pre_hook(lambda _, inputs: features.append(inputs[0])) if linear else None
    )
    device, training = next(model.parameters()).device, model.training
    model.eval()
    try:
        with torch.no_grad():
            for start in range(0, len(x), _BATCH):
                logits = model(x[start : start + _BATCH].to(device))
                if hook is None:
                    features.append(logits)
    finally:
        model.train(training)
        if hook is not None:
            hook.remove()
    return torch.cat([part.flatten(1) for part in features]).double().cpu().numpy()
