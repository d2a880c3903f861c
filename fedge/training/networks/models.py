"""Networks for clients' training, and the names of their parts.

All models are made by `build_model`; `fedge.config.registers.parts.MODELS` lists them. A model is
called with the shape of its input and the number of classes, takes float32 windows (N, C, T) or images (N, C,
H, W) and returns (N, classes) logits. Its state dict has the names and shapes of
the plain `nn.Conv1d` network in any memory layout (see `layout.py`).

Shape letters: N windows, C channels, T samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import MODELS, refuse_input_shape
from fedge.training.networks import layout
from fedge.training.networks.own_models import BATCH_NORMS, OwnFit, Shape, build_own

_Network = TypeVar("_Network", bound=nn.Module)


def build_model(
    name: str,
    input_shape: Shape,
    classes: int,
    generator: torch.Generator,
    arguments: Mapping[str, Any] | None = None,
    fit: OwnFit | None = None,
) -> nn.Module:
    """A freshly initialised model on the CPU, in training mode.

    Weights are drawn from `generator` alone: equal generator states give equal bits, and the global random
    state is neither read nor changed. Fedge's models use the distributions of PyTorch's layers; a user's
    model is initialised by its own code (`fedge.training.networks.own_models`).

    Args:
        name: name in `fedge.config.registers.parts.MODELS`, or of a user's model.
        input_shape: (C, T) or (C, H, W), each at least 1 (`cnn-pool`: at least 4 samples).
        classes: number of logits, at least 1.
        generator: a CPU generator; it advances.
        arguments: further ones, by keyword.
        fit: its input and answer; None: numbers, a logit per class.

    Raises:
        ConfigError: the name is unknown, or the model cannot work.
        ValueError: a size is too small for the model.
    """
    factory: Callable[..., nn.Module] = MODELS.load(name)
    if MODELS.is_own(name):
        return build_own(name, factory, input_shape, classes, generator, arguments or {}, fit)
    refuse_input_shape(name, input_shape)
    _refuse_other_fit(name, classes, fit or OwnFit())
    names = ("channels", "samples") if len(input_shape) == 2 else ("channels", "height", "width")
    for dimension, size in (*zip(names, input_shape, strict=False), ("classes", classes)):
        if size < 1:
            raise ValueError(f"model {name}: {dimension} must be at least 1, got {size}")
    with torch.device("meta"):
        model = factory(input_shape, classes, **(arguments or {}))
    return initialised(model, generator)


def _refuse_other_fit(name: str, classes: int, fit: OwnFit) -> None:
    """Raise ConfigError for inputs or outputs Fedge's models do not support."""
    if fit.tokens:
        raise ConfigError(
            f"train.model {name} takes numbers, but the data are tokens (int64 x); set train.model to code "
            f"of your own, with an embedding"
        )
    if fit.answer is not None and fit.answer != (classes,):
        raise ConfigError(
            f"train.model {name} has an answer per example and output, ({classes},), but train.task asks "
            f"for {fit.answer}; set train.model to code of your own"
        )


def initialised(model: _Network, generator: torch.Generator) -> _Network:
    """A network made on the meta device on the CPU, its weights drawn from `generator` alone.

    Args:
        model: network of convolutions, linear layers and BatchNorm.
        generator: a CPU generator; it advances.
    """
    with torch.no_grad():
        for layer in model.modules():
            _allocate(layer)
            _initialise(layer, generator)
    return model


def _allocate(layer: nn.Module) -> None:
    """Give a layer made on the meta device memory on the CPU; `to_empty` would first import SymPy: 0.6 s."""
    for name, parameter in layer.named_parameters(recurse=False):
        empty = torch.empty(parameter.shape, dtype=parameter.dtype)
        setattr(layer, name, nn.Parameter(empty, parameter.requires_grad))
    for name, buffer in layer.named_buffers(recurse=False):
        setattr(layer, name, torch.empty(buffer.shape, dtype=buffer.dtype))


def state_entries(model: nn.Module) -> dict[str, Tensor]:
    """The entries of the state dict, with tied weights under their first name only.

    The tensors share the model's memory, dtype and shape, and need no gradient.
    """
    first: dict[int, str] = {}
    entries: dict[str, Tensor] = model.state_dict(keep_vars=True)
    return {
        name: entry.detach() for name, entry in entries.items() if first.setdefault(id(entry), name) == name
    }


def parameter_names(model: nn.Module) -> list[str]:
    """Names of the trainable parameters, in state-dict order."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def variance_names(model: nn.Module, input_shape: Shape, tokens: bool = False) -> list[str]:
    """Names of the state-dict entries holding variances, never negative: BatchNorm's running ones.

    If a layer is called several times per batch, its name is listed as often, because its counter grows by
    that number in a step.

    Args:
        model: model on the CPU; unchanged.
        input_shape: (C, T) or (C, H, W), or others.
        tokens: whether inputs are int64, from 0 on; else float32.
    """
    layers = model.named_modules()
    norms = {name: layer for name, layer in layers if isinstance(layer, nn.modules.batchnorm._NormBase)}
    calls, was_training = Counter(norms.keys()), model.training
    called: list[str] = []
    hooks = [
        layer.register_forward_pre_hook(lambda *_, name=name: called.append(name))
        for name, layer in norms.items()
    ]
    try:
        if norms:
            with torch.no_grad():
                model.eval()(torch.zeros(2, *input_shape, dtype=torch.int64 if tokens else torch.float32))
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    calls |= Counter(called)  # at least one of each
    names = (f"{norm}.running_var" if norm else "running_var" for norm in calls.elements())
    entries = model.state_dict()
    return [name for name in names if name in entries]


def head_names(model: nn.Module) -> tuple[str, ...]:
    """Names of the parameters of the head: the layer with the last parameter of two or more axes.

    For most networks the last `nn.Linear`: its weight, and its bias if present.

    Raises:
        ValueError: the model has no such parameter.
    """
    matrices = [name for name, parameter in model.named_parameters() if parameter.dim() > 1]
    if not matrices:
        raise ValueError(f"{type(model).__name__} has no layer with a weight matrix to call its head")
    layer = matrices[-1].rpartition(".")[0]
    parameters = model.get_submodule(layer).named_parameters(recurse=False)
    return tuple(f"{layer}.{name}" if layer else name for name, _ in parameters)


def layer_names(model: nn.Module, kinds: Collection[str]) -> list[str]:
    """Names of the state-dict entries of layers of some kinds, in state-dict order.

    Args:
        model: any.
        kinds: "head", see `head_names`; "batch-norm", every BatchNorm with its statistics and counter.

    Raises:
        ValueError: the model has no head.
    """
    chosen = set(head_names(model)) if "head" in kinds else set()
    if "batch-norm" in kinds:
        norms = (name for name, layer in model.named_modules() if isinstance(layer, BATCH_NORMS))
        chosen |= {f"{norm}.{entry}" for norm in norms for entry in model.get_submodule(norm).state_dict()}
    return [name for name in state_entries(model) if name in chosen]


class Cnn(nn.Module):
    """The reference network: two Conv–BatchNorm–ReLU blocks, average over time, linear head.

    23,174 trainable parameters at 6 channels and 6 classes, for any number of samples.
    """

    def __init__(self, input_shape: Shape, classes: int) -> None:
        super().__init__()
        self.conv1 = layout.Conv(input_shape[0], 64, 5)
        self.norm1 = layout.BatchNorm(64)
        self.conv2 = layout.Conv(64, 64, 5)
        self.norm2 = layout.BatchNorm(64)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, T) → (N, classes)."""
        x = layout.to_layout(x)
        x = layout.relu(self.norm1(self.conv1(x)))
        x = layout.relu(self.norm2(self.conv2(x)))
        return self.head(layout.mean_over_time(x))


class CnnPool(nn.Module):
    """The benchmark network: two Conv–ReLU–MaxPool(2) blocks, Linear(128)–ReLU, linear head."""

    def __init__(self, input_shape: Shape, classes: int) -> None:
        super().__init__()
        channels, samples = input_shape
        if samples < 4:
            raise ValueError(
                f"model cnn-pool: samples must be at least 4 (it pools by 2 twice), got {samples}"
            )
        self.conv1 = layout.Conv(channels, 64, 5)
        self.conv2 = layout.Conv(64, 64, 5)
        self.hidden = nn.Linear(64 * (samples // 2 // 2), 128)
        self.head = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, T) → (N, classes)."""
        x = layout.to_layout(x)
        x = layout.relu_max_pool2(self.conv1(x))
        x = layout.relu_max_pool2(self.conv2(x))
        return self.head(F.relu(self.hidden(layout.flatten_channels(x))))


class Cnn2d(nn.Module):
    """For images: two Conv(3×3)–ReLU–MaxPool(2) blocks, Linear(128)–ReLU, linear head.

    The network of McMahan et al. 2017 for MNIST, with smaller kernels: 421,642 trainable parameters for
    (1, 28, 28) and 10 classes at a width of 32.
    """

    def __init__(self, input_shape: Shape, classes: int, width: int = 32) -> None:
        super().__init__()
        channels, height, breadth = input_shape
        if min(height, breadth) < 4:
            raise ValueError(
                f"model cnn2d: images must be at least 4 × 4 (it pools by 2 twice), got {height} × {breadth}"
            )
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.hidden = nn.Linear(2 * width * (height // 2 // 2) * (breadth // 2 // 2), 128)
        self.head = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, classes)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(F.relu(self.hidden(x.flatten(1))))


class MlpTiny(nn.Module):
    """A few hundred parameters: mean over time, Linear(16)–BatchNorm–ReLU, head. For tests of plumbing."""

    def __init__(self, input_shape: Shape, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(input_shape[0], 16)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, T) → (N, classes)."""
        return self.head(F.relu(self.norm(self.hidden(x.mean(dim=2)))))


class SoftmaxRegression(nn.Module):
    """Multinomial logistic regression on the flattened window: a convex problem."""

    def __init__(self, input_shape: Shape, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(math.prod(input_shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, T) → (N, classes)."""
        return self.head(x.flatten(1))


def _initialise(layer: nn.Module, generator: torch.Generator) -> None:
    """PyTorch's default initialisation of one layer (not its children), drawn from `generator`."""
    if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Linear)):
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
        if layer.bias is not None:
            bound = 1 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    elif isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
        layer.reset_parameters()
    else:
        tensors = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
        assert not tensors, f"build_model cannot initialise {type(layer).__name__}: add it to _initialise"
