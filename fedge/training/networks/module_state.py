"""A network's state dict as arrays, and back."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from fedge.training.networks.models import state_entries

State = dict[str, np.ndarray]
"""Name → array, in the order of the module's state dict; integer entries are counters."""


def get_state(model: nn.Module) -> State:
    """A copy of the model's state dict as arrays on the host; a tensor with two names occurs once."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state_entries(model).items()}


def load_state(model: nn.Module, state: Mapping[str, np.ndarray]) -> None:
    """Copy `state` into the model, in the model's precision; they share no memory afterwards.

    Raises:
        ValueError: an entry is missing, unknown or of another shape.
    """
    entries = state_entries(model)
    mismatched = sorted(entries.keys() ^ state.keys())
    if mismatched:
        problem = "is missing from the state" if mismatched[0] in entries else "is unknown to the model"
        raise ValueError(f"load_state: entry {mismatched[0]!r} {problem}")
    with torch.no_grad():
        for name, tensor in entries.items():
            array = np.asarray(state[name])
            if array.shape != tuple(tensor.shape):
                raise ValueError(
                    f"load_state: entry {name!r} must have shape {tuple(tensor.shape)}, got {array.shape}"
                )
            tensor.copy_(tensor_of(array))


def tensor_of(array: np.ndarray) -> Tensor:
    """A CPU tensor on the memory of `array`, of its shape and dtype.

    The array may be read-only or memory-mapped: never write to the tensor.
    """
    _silence_read_only_warning()
    return torch.from_numpy(array)


@functools.cache
def _silence_read_only_warning() -> None:
    """Trigger PyTorch's warning about read-only arrays now, suppressed: it is given once per process."""
    read_only = np.zeros(1)
    read_only.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(read_only)
