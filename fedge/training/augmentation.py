"""Augmentation: random changes of training inputs, batch by batch, as arrays.

Changes are drawn from the random stream that orders a client's windows, so their bits do not depend on where
it trains. Evaluation is never augmented. Shape letters: B inputs of a batch; images are (B, C, H, W).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedge.config.registers.determinism import FROM_RNG, call_twice
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import AUGMENTATIONS, names_in
from fedge.config.registers.register import refuse_class
from fedge.config.sections.train import TrainConfig

Augment = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""(inputs (B, …), random numbers) → inputs of the same shape and dtype."""
_MOST_SEED = 2**62
_MOST_PAD = 1000  # pixels; padded images must fit into memory


def crop(x: np.ndarray, rng: np.random.Generator, pad: int = 4) -> np.ndarray:
    """Images (B, C, H, W), each shifted by up to `pad` pixels in both directions and filled with zeros.

    Zero is the mean of scaled images. Source: the usual augmentation of CIFAR-10 (He et al. 2016, "Deep
    Residual Learning for Image Recognition", section 4.2).
    """
    if type(pad) is not int or not 0 <= pad <= _MOST_PAD:
        raise ConfigError(
            f"train.augment-args.pad must be a whole number of 0 to {_MOST_PAD}, but is {shown(pad)}; try 4"
        )
    batch, _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    down, right = rng.integers(0, 2 * pad + 1, size=(2, batch))
    rows, columns = down[:, None] + np.arange(height), right[:, None] + np.arange(width)
    cropped = padded[np.arange(batch)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return np.ascontiguousarray(cropped.transpose(0, 3, 1, 2))


def flip(x: np.ndarray, rng: np.random.Generator, chance: float = 0.5) -> np.ndarray:
    """Images (B, C, H, W), each mirrored left to right with probability `chance`, 0..1."""
    if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 <= chance <= 1:
        raise ConfigError(
            f"train.augment-args.chance must be a number of 0 to 1, but is {shown(chance)}; try 0.5"
        )
    mirrored = rng.random(len(x)) < chance
    return np.where(mirrored[:, None, None, None], x[..., ::-1], x)


def augment_of(config: TrainConfig) -> Augment | None:
    """Augmentation of a run, with its parts applied in order; None without any.

    Args:
        config: `train.augment` and `train.augment-args` are read.

    Raises:
        ConfigError: a part cannot be imported, or no part takes an argument.
    """
    names = names_in(config.augment)
    if not names:
        return None
    parts = tuple(AUGMENTATIONS.load(name) for name in names)
    return _build_augmentation(names, parts, config.augment_args)


@lru_cache(maxsize=4)
def _build_augmentation(names: tuple[str, ...], parts: tuple[Any, ...], table_text: str) -> Augment:
    all_arguments = TrainConfig(augment_args=table_text).arguments("augment")
    arguments: list[dict[str, Any]] = []
    for name, part in zip(names, parts, strict=True):
        part_arguments = {
            key: value for key, value in all_arguments.items() if key in inspect.signature(part).parameters
        }
        refuse_class(AUGMENTATIONS, name, "(x, rng)")
        AUGMENTATIONS.refuse_wrong_arguments(name, part_arguments, "x", "rng")
        arguments.append(part_arguments)
    unused = sorted(set(all_arguments).difference(*arguments))
    if unused:
        raise ConfigError(
            f"train.augment-args must be arguments of train.augment {','.join(names)}, but "
            f"{shown(unused[0])} is of none; remove it"
        )

    def augment(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        for name, part, part_arguments in zip(names, parts, arguments, strict=True):
            with AUGMENTATIONS.explaining_errors(name):
                x = _require_same_form(name, x, part(x, rng, **part_arguments))
        return x

    return augment


def _require_same_form(name: str, before: np.ndarray, after: object) -> np.ndarray:
    """Inputs changed by a part; ConfigError if their shape or type changed."""
    if not isinstance(after, np.ndarray) or after.shape != before.shape or after.dtype != before.dtype:
        result = f"{after.dtype} {after.shape}" if isinstance(after, np.ndarray) else shown(after)
        raise ConfigError(
            f"train.augment {name} must return {before.dtype} {before.shape} as it was given, but returned "
            f"{result}; fix it"
        )
    return after


def refuse_augmentation(config: TrainConfig, x: np.ndarray) -> None:
    """Raise ConfigError for an augmentation failing on examples x (N, …) of the run.

    Args:
        config: configuration of the run.
        x: a few inputs, as networks take them.
    """
    augment = augment_of(config)
    if augment is None:
        return
    needs = (
        ("kernel", config.kernel, "torch", config.kernel != "native"),
        ("processes", config.processes, 1, config.processes == 1),
    )
    for option, value, required, is_met in needs:
        if not is_met:
            raise ConfigError(
                f"train.augment {config.augment} needs train.{option} to be {required}, whose batches it can "
                f"change, but it is {value}; set train.{option}={required}"
            )
    for name in names_in(config.augment):
        if not AUGMENTATIONS.is_own(name) and x.ndim != 4:
            raise ConfigError(
                f"train.augment {name} must have images (C, H, W), but the data are of shape {x.shape[1:]}; "
                f"leave it out, or name code of your own"
            )

    def apply() -> np.ndarray:
        return augment(x.copy(), np.random.default_rng(0))

    try:
        has_own = any(AUGMENTATIONS.is_own(name) for name in names_in(config.augment))
        label = f"train.augment {config.augment}"
        augmented = call_twice(label, apply, FROM_RNG, in_threads=True) if has_own else apply()
    except ConfigError:
        raise
    except own_errors() as error:
        raise ConfigError(
            f"train.augment {config.augment} fails: {own_error(error)}; change train.augment-args"
        ) from error
    if augmented.dtype.kind == "f" and not np.isfinite(augmented).all():
        raise ConfigError(f"train.augment {config.augment} must return finite numbers, but does not; fix it")


class Batches:
    """Batches of one pass over a client's windows, augmented if configured.

    Attributes:
        order: (n,) int64, indices of the pass.
    """

    def __init__(
        self, order: Tensor, batch_size: int, augment: Augment | None, generator: torch.Generator
    ) -> None:
        """Store the order and settings of a pass.

        Args:
            order: indices of windows.
            batch_size: windows of a batch.
            augment: changes inputs; None leaves them alone, and draws nothing.
            generator: the stream of the order; augmentation draws one number from it.
        """
        self.order = order
        self._batch_size = batch_size
        self._augment = augment
        if augment is not None:
            drawn = torch.randint(_MOST_SEED, (1,), generator=generator)
            self._rng = np.random.default_rng(int(drawn))

    def rows(self, device: torch.device) -> Sequence[Tensor]:
        """Indices (B,) of each batch, on a device."""
        return self.order.to(device).split(self._batch_size)

    def inputs(self, x: Tensor, rows: Tensor) -> Tensor:
        """Inputs of a batch of x (N, …), in the order of its rows (B,), on the device of x."""
        inputs = x.index_select(0, rows)
        if self._augment is None:
            return inputs
        return torch.from_numpy(self._augment(inputs.cpu().numpy(), self._rng)).to(x.device)
