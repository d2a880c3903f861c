"""Plan of the native step for one model and window shape, made once and compared with PyTorch.

A plan is used only if loss, gradients and statistics agree with PyTorch on a generated batch. This detects
differences invisible in a trace, e.g. a stopped gradient or a rounding layer.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedge.native.library import Library, Session, UnavailableError, best_kernel, open_library
from fedge.native.operations import HANDLERS
from fedge.native.program import DropoutLayer, Entries, dropouts_of, encoded, entries_of
from fedge.native.trace import DROPPED, RECURRENT, Network, UnknownError, answer_with, trace_operations

_CHECK_WINDOWS = 5
_CHUNK = 2**18  # numbers handled at a time
_TOLERANCE = 0.02  # share of a gradient's norm: rounding may move an activation across the kink of a ReLU


@dataclass(frozen=True)
class Plan:
    """Native training and evaluation of a model.

    Attributes:
        kernel: name of the kernel.
        weights: parameters in the native step, trainable ones first.
        buffers: running means and variances.
        counters: entries growing by one with every step.
        training, evaluation: encoded programs.
        drops: dropouts, in the order in which PyTorch draws them.
        inputs: shape of a window.
        classes: number of logits.
        smallest_batch: least windows of a training batch: 2 if a norm would otherwise see a single value.
        unrounded: layers whose factors are never rounded, in words: "images", "recurrent layers" or empty.
        tokens: number of distinct tokens if windows are tokens; else 0.
    """

    kernel: str
    weights: Entries
    buffers: Entries
    counters: tuple[str, ...]
    training: np.ndarray
    evaluation: np.ndarray
    drops: tuple[DropoutLayer, ...]
    inputs: tuple[int, ...]
    classes: int
    smallest_batch: int
    unrounded: str
    tokens: int = 0

    @property
    def mask_bytes(self) -> int:
        """Bytes of a window's dropout masks."""
        return sum(drop.mask_bytes for drop in self.drops)


_plans: weakref.WeakKeyDictionary[nn.Module, dict[tuple[tuple[int, ...], str, bool], Plan | str]] = (
    weakref.WeakKeyDictionary()
)


def plan_of(
    model: nn.Module, input_shape: tuple[int, ...], tokens: bool = False, kernel: str = ""
) -> Plan | str:
    """Plan for a model and window shape, or the reason to use PyTorch, in words.

    Args:
        model: model on the CPU; unchanged.
        input_shape: (C, T) or (C, H, W); (C,) for features, (T,) for tokens.
        tokens: whether windows are int64 tokens.
        kernel: name of an available kernel; "" for the best one.
    """
    try:
        if kernel:
            open_library().number(kernel)
        kernel = kernel or best_kernel()
    except UnavailableError as error:
        return f"the native step is unavailable: {error}"
    plans = _plans.setdefault(model, {})
    key = (tuple(input_shape), kernel, tokens)
    if key not in plans:
        try:
            plans[key] = make_plan(model, key[0], kernel, tokens=tokens)
        except UnknownError as unknown:
            plans[key] = f"the native step does not support {unknown}"
    return plans[key]


def make_plan(
    model: nn.Module,
    input_shape: tuple[int, ...],
    kernel: str,
    library: Library | None = None,
    tokens: bool = False,
) -> Plan:
    """Plan for a model, verified against PyTorch; arguments as in `plan_of`.

    Raises:
        UnknownError: the model has operations the native step does not support.
    """
    _refuse_other_parameters(model)
    learning = trace_operations(model, input_shape, True, HANDLERS, tokens)
    serving = trace_operations(model, input_shape, False, HANDLERS, tokens)
    parameters = dict(model.named_parameters())
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    weights = entries_of(
        {name: shape for name, shape in shapes.items() if parameters[name].requires_grad},
        {name: shape for name, shape in shapes.items() if not parameters[name].requires_grad},
    )
    buffers = _buffers(model, learning, serving)
    plan = Plan(
        kernel, weights, buffers, learning.counters,
        encoded(learning, weights, buffers, True), encoded(serving, weights, buffers, False),
        tuple(dropouts_of(learning)), input_shape,
        serving.values[serving.logits][0], _smallest_batch(learning),
        _unrounded(learning), _embedding_rows(learning, shapes) if tokens else 0,
    )  # fmt: skip
    _verify(plan, model, library)
    return plan


def _unrounded(network: Network) -> str:
    """Layers whose factors are not rounded to bf16, in words."""
    kinds = {node.kind for node in network.nodes}
    return "images" if "image_conv" in kinds else "recurrent layers" if kinds & set(RECURRENT) else ""


def _embedding_rows(network: Network, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Rows of the embedding of a network's input; the smallest number if there are several embeddings."""
    rows = [shapes[node.weight][0] for node in network.nodes if node.kind == "embed"]
    if not rows or any(0 in node.inputs for node in network.nodes if node.kind != "embed"):
        raise UnknownError("tokens that are not embedded")
    return min(rows)


def _refuse_other_parameters(model: nn.Module) -> None:
    """Raise UnknownError for parameters other than contiguous float32 on the CPU."""
    for name, entry in model.named_parameters():
        if entry.dtype != torch.float32 or entry.device.type != "cpu" or not entry.is_contiguous():
            raise UnknownError(f"parameter {name} ({entry.dtype} on {entry.device})")


def _buffers(model: nn.Module, learning: Network, serving: Network) -> Entries:
    """Running means and variances, each mean followed by its variance."""
    entries = dict(model.named_buffers())
    pairs = dict.fromkeys(
        node.buffers for network in (learning, serving) for node in network.nodes if node.buffers
    )
    if any(node.kind == "fixed_norm" for node in learning.nodes) or any(
        node.kind == "norm" for node in serving.nodes
    ):
        raise UnknownError("a BatchNorm with a fixed mode")
    names = [name for pair in pairs for name in pair]
    if len(set(names)) != len(names):
        raise UnknownError(f"buffer {names[0]} (it has two uses)")
    return entries_of({}, {name: tuple(entries[name].shape) for name in names})


def _smallest_batch(network: Network) -> int:
    """Least number of windows in a batch with which no norm sees a single value."""
    for node in network.nodes:
        channels, steps = network.values[node.inputs[0]]
        if node.kind == "norm" and steps == 1:
            return 2
        if node.kind == "group_norm" and channels // node.size * steps == 1:
            return 2
    return 1


# --- comparison with PyTorch ------------------------------------------------------------------------------


class _KeepAll(TorchFunctionMode):
    """Dropout that keeps all values, scaled as usual."""

    def __torch_function__(
        self, func: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "").rstrip("_") in ("dropout", "dropout1d", "dropout2d"):
            rate = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            training = args[2] if len(args) > 2 else kwargs.get("training", True)
            return args[0] / (1.0 - rate) if training else args[0]
        if getattr(func, "__name__", "") in RECURRENT and args[DROPPED] and args[6]:
            return _without_dropping(func, args)
        return func(*args, **kwargs)  # type: ignore[operator]


def _without_dropping(func: object, args: tuple) -> object:
    """Recurrent layers called one by one, with dropout between them keeping all values, scaled as usual."""
    x, start, weights, bias, layers, rate, training, two_way, batch_first = args
    per_layer, states = len(weights) // layers, 2 if two_way else 1
    for layer in range(layers):
        part = slice(layer * states, (layer + 1) * states)
        begin = tuple(state[part] for state in start) if isinstance(start, (list, tuple)) else start[part]
        params = weights[layer * per_layer : (layer + 1) * per_layer]
        x = x / (1.0 - rate) if layer else x
        out = func(x, begin, params, bias, 1, 0.0, training, two_way, batch_first)  # type: ignore[operator]
        x = out[0]
    return out


def _verify(plan: Plan, model: nn.Module, library: Library | None) -> None:
    """Raise UnknownError unless one step and one evaluation agree with PyTorch's."""
    was_training = model.training
    try:
        with torch.inference_mode(False), torch.enable_grad():  # the first call may be an evaluation
            generator = torch.Generator().manual_seed(0)
            numbers = _random_entries(model, generator)
            x = _generated_windows(plan, generator)
            classes, gradients, running = _step_by_pytorch(model, numbers, x, plan.buffers)
        y = torch.arange(_CHECK_WINDOWS) % classes
        model.eval()
        with torch.no_grad():
            losses = F.cross_entropy(answer_with(model, numbers, x), y, reduction="none").double().numpy()
    finally:
        model.train(was_training)
    weights, buffers = flat_array(plan.weights, numbers), flat_array(plan.buffers, numbers)
    del numbers  # a further copy of a large model takes noticeable memory
    with Session(plan.evaluation, _CHECK_WINDOWS, plan.kernel, library) as session:
        session.begin(weights, buffers, None, np.zeros(6))
        _require_close("its evaluation", session.evaluate(x.float().numpy(), y.numpy())[0], losses)
    masks = np.ones(_CHECK_WINDOWS * plan.mask_bytes, np.uint8) if plan.drops else None
    stepped = weights.copy()
    with Session(plan.training, _CHECK_WINDOWS, plan.kernel, library) as session:
        session.begin(weights, buffers, None, np.array([1.0, 0, 0, 0, 0, 0]))
        session.train(x.float().numpy(), y.numpy(), np.arange(_CHECK_WINDOWS), masks, 1)
        session.end(stepped, buffers)
    scale = sum(_norm(g.reshape(-1)) ** 2 for g in gradients.values()) ** 0.5
    np.subtract(weights, stepped, out=stepped)
    for name, gradient in gradients.items():
        part = slice(plan.weights.offsets[name], plan.weights.offsets[name] + gradient.size)
        _require_close(f"the gradient of {name}", stepped[part], gradient.reshape(-1), 1e-4 * scale)
    for name, entry in running.items():
        part = slice(plan.buffers.offsets[name], plan.buffers.offsets[name] + entry.size)
        _require_close(f"buffer {name}", buffers[part], entry)


def _generated_windows(plan: Plan, generator: torch.Generator) -> Tensor:
    """Windows for the comparison."""
    shape = (_CHECK_WINDOWS, *plan.inputs)
    if plan.tokens:
        return torch.randint(plan.tokens, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def _random_entries(model: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Random entries with which no layer is dead, and no two numbers are equal."""
    numbers = {}
    for name, entry in [*model.named_parameters(), *model.named_buffers()]:
        if not entry.is_floating_point():
            numbers[name] = entry.clone()
            continue
        drawn = torch.randn(entry.shape, generator=generator)
        fan_in = max(1, entry.shape[1:].numel()) if entry.dim() > 1 else 4
        numbers[name] = drawn / fan_in**0.5 if entry.dim() > 1 else 1.0 + 0.3 * drawn.clamp(-2, 2)
    return numbers


def _step_by_pytorch(
    model: nn.Module, numbers: Mapping[str, Tensor], x: Tensor, statistics: Entries
) -> tuple[int, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Number of classes, gradients of the mean loss, and statistics after one training step in PyTorch.

    Raises:
        UnknownError: the step changes a buffer not among the statistics.
    """
    model.train()
    entries = {name: entry.clone() for name, entry in numbers.items()}
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    for name in trainable:
        entries[name].requires_grad_()
    with _KeepAll():
        logits = answer_with(model, entries, x)
    loss = F.cross_entropy(logits, torch.arange(len(x)) % logits.shape[1])
    gradients = torch.autograd.grad(loss, [entries[name] for name in trainable], materialize_grads=True)
    for name, _ in model.named_buffers():  # other buffers do not concern the native step
        is_other = numbers[name].is_floating_point() and name not in statistics.offsets
        if is_other and not torch.equal(entries[name], numbers[name]):
            raise UnknownError(f"buffer {name} (training changes it)")
    buffers = {name: entries[name].detach().numpy() for name in statistics.offsets}
    return logits.shape[1], {n: g.numpy() for n, g in zip(trainable, gradients, strict=True)}, buffers


def _require_close(label: str, actual: np.ndarray, expected: np.ndarray, slack: float = 1e-6) -> None:
    """Raise UnknownError unless two arrays agree up to rounding."""
    actual, expected = actual.reshape(-1), expected.reshape(-1)
    if not _norm(actual, expected) <= _TOLERANCE * _norm(expected) + slack:
        raise UnknownError(f"this network ({label} is not what PyTorch computes)")


def _norm(flat: np.ndarray, start: np.ndarray | None = None) -> float:
    """Euclidean length of a flat array, or of its difference from another, in float64, computed in parts."""
    total = 0.0
    for first in range(0, len(flat), _CHUNK):
        part = flat[first : first + _CHUNK].astype(np.float64)
        if start is not None:
            part -= start[first : first + _CHUNK]
        total += float(np.dot(part, part))
    return total**0.5


def flat_array(entries: Entries, numbers: Mapping[str, Tensor]) -> np.ndarray:
    """Entries concatenated, float32 (n,); zeros for those missing from `numbers`."""
    flat = np.zeros(entries.floats, np.float32)
    for name, first in entries.offsets.items():
        if name not in numbers:
            continue
        part = numbers[name].detach().reshape(-1).numpy()
        flat[first : first + part.size] = part
    return flat
