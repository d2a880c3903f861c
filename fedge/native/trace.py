"""Operations of a network, recorded while it is called.

A model is called in training or evaluation mode, with copies of its buffers, under a `TorchFunctionMode`. The
mode sees every operation, whether called by a layer, its subclass, or a line of `forward`. During the call,
dropout draws nothing, and the model is unchanged. Operations depending on values, and those missing from
`fedge.native.operations`, are refused with the name of their layer. (PyTorch's meta device would avoid the
computation, but takes seconds to load.)

The model is called with two batch sizes, and both traces must be equal; this detects networks depending on
the number of windows.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_BATCHES = (2, 3)
_PROPERTIES = frozenset(  # properties of a tensor, independent of its values
    {
        "shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "stride", "len", "names", "dtype",
        "device", "layout", "requires_grad", "is_contiguous", "is_floating_point", "is_complex", "is_cuda",
        "is_mps", "is_meta", "is_sparse", "is_quantized", "is_leaf", "is_nested",
    }
)  # fmt: skip
_DRAWING = ("dropout", "dropout1d", "dropout2d")
RECURRENT = ("gru", "lstm")
DROPPED = 5  # index of a recurrent layer's argument for dropout between its layers
_AXES = {2: ("N", "C"), 3: ("N", "C", "T"), 4: ("N", "C", "H", "W")}  # axes of a tensor, by rank


class UnknownError(Exception):
    """Error: unsupported operation of a network. Part of a line: layer and operation."""


@dataclass(frozen=True)
class Node:
    """One operation on values; the meaning of its fields depends on its kind (`fedge.native.program`)."""

    kind: str
    inputs: tuple[int, ...]  # numbers of values
    output: int
    weight: str = ""  # names of entries of the state dict
    bias: str = ""
    buffers: tuple[str, ...] = ()  # running mean and variance
    size: int = 0  # taps over time, as for the next two fields
    stride: int = 1
    padding: int = 0  # steps of zeros in front
    lines: tuple[int, ...] = ()  # of an image: number of lines; size, stride and padding of taps over them
    flag: bool = False
    numbers: tuple[float, ...] = ()
    state: tuple[str, str] = ("", "")  # weight and bias of a recurrent layer's state
    order: str = "NCT"  # of a dropout: axes in the order of PyTorch's draws


@dataclass(frozen=True)
class Network:
    """Operations of a model on a window.

    Attributes:
        values: (channels, steps) of each value; an image's steps are those of all its lines.
        nodes: operations, in the order of the calls.
        logits: number of the value returned by the model.
        counters: entries of the state dict growing by one with every call.
    """

    values: tuple[tuple[int, int], ...]
    nodes: tuple[Node, ...]
    logits: int
    counters: tuple[str, ...]


@dataclass
class OperationRecorder:
    """Recorder of a network's operations during a call.

    Axes of tensors are named N windows, C channels, T steps, H × W pixels; a flattened one is "CT" or "TC".
    Most tensors are (N, C), (N, C, T) or (N, C, H, W); the axes of others are recorded.

    Attributes:
        batch: windows of the input.
        names: id of a parameter or buffer → its name.
        values, nodes, counters: as in `Network`.
    """

    batch: int
    names: dict[int, str]
    values: list[tuple[int, int]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    counters: list[str] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)  # id of a tensor → its value
    _references: list[Tensor] = field(default_factory=list)  # keeps ids unique
    _axes: dict[int, tuple[str, ...]] = field(default_factory=dict)  # axes of tensors in another order
    _zeros: set[int] = field(default_factory=set)  # ids of zero tensors
    _states: dict[int, list[tuple[int, int] | None]] = field(default_factory=dict)

    def number(self, tensor: Any) -> int:
        """Value number of a tensor with its axes in the usual order, e.g. (N, C, T).

        Raises:
            UnknownError: the tensor does not derive from the input by supported operations.
        """
        number = self.number_of_any(tensor)
        if id(tensor) in self._axes:
            raise UnknownError(f"its input has axes {', '.join(self._axes[id(tensor)])}")
        return number

    def number_of_any(self, tensor: Any) -> int:
        """Value number of a tensor with any order of axes; see `number`."""
        if not isinstance(tensor, Tensor) or id(tensor) not in self._numbers:
            raise UnknownError("it uses a number or tensor that does not derive from its input")
        return self._numbers[id(tensor)]

    def axes(self, tensor: Tensor) -> tuple[str, ...]:
        """Names of a tensor's axes, e.g. ("N", "C", "T") for (N, C, T)."""
        if id(tensor) in self._axes:
            return self._axes[id(tensor)]
        return ("N", "CT") if self.is_flat(tensor) else _AXES[tensor.dim()]

    def bind(self, tensor: Tensor, value: int, axes: tuple[str, ...]) -> None:
        """Record a tensor as a value, with named axes, e.g. ("N", "C") for (N, C)."""
        self._references.append(tensor)
        self._numbers[id(tensor)] = value
        if axes != _AXES.get(tensor.dim()) and axes != ("N", "CT"):
            self._axes[id(tensor)] = axes

    def bind_zeros(self, tensor: Tensor) -> None:
        """Record a tensor of zeros, float32 (N, …)."""
        self._references.append(tensor)
        self._zeros.add(id(tensor))

    def is_zeros(self, tensor: Any) -> bool:
        """Whether a tensor is known to be all zeros for any windows."""
        return id(tensor) in self._zeros

    def bind_states(self, tensor: Tensor, states: list[tuple[int, int] | None]) -> None:
        """Record a tensor (states, N, C) whose rows are each a step of a value; None for unknown rows."""
        self._references.append(tensor)
        self._states[id(tensor)] = states

    def states(self, tensor: Any) -> list[tuple[int, int] | None] | None:
        """States of a tensor, from `bind_states`; None if it holds none."""
        return self._states.get(id(tensor))

    def name(self, tensor: Any) -> str:
        """Name of a parameter or buffer; "" for None.

        Raises:
            UnknownError: the tensor is neither.
        """
        if tensor is None:
            return ""
        if id(tensor) not in self.names:
            raise UnknownError("it uses computed weights, or tensors that are not parameters")
        return self.names[id(tensor)]

    def alias(self, tensor: Tensor, same_as: Tensor) -> None:
        """Record a tensor as another one in a different shape, (N, …)."""
        self._references.append(tensor)
        if id(same_as) in self.names:
            self.names[id(tensor)] = self.names[id(same_as)]
        elif id(same_as) in self._zeros:
            self._zeros.add(id(tensor))
        elif id(same_as) in self._states:
            self._states[id(tensor)] = self._states[id(same_as)]
        else:
            self._numbers[id(tensor)] = self.number_of_any(same_as)
            if id(same_as) in self._axes and tensor.dim() == same_as.dim():
                self._axes[id(tensor)] = self._axes[id(same_as)]

    def new_value(self, tensor: Tensor) -> int:
        """Number of a new value, held by a tensor (N, C), (N, C, T) or (N, C, H, W)."""
        shape = tuple(tensor.shape)
        if len(shape) not in (2, 3, 4) or shape[0] != self.batch:
            raise UnknownError(f"it makes a tensor of shape {shape}")
        self._references.append(tensor)
        self._numbers[id(tensor)] = self.add_value(shape[1], math.prod(shape[2:]))
        return len(self.values) - 1

    def add_value(self, channels: int, steps: int) -> int:
        """Number of a new value, held by no tensor yet."""
        self.values.append((channels, steps))
        return len(self.values) - 1

    def same_value(self, tensor: Tensor, like: int) -> int:
        """Number of a new value with the size of another; the tensor may have any shape."""
        self._references.append(tensor)
        self._numbers[id(tensor)] = self.add_value(*self.values[like])
        return len(self.values) - 1

    def same_axes(self, tensor: Tensor, like: Tensor) -> int:
        """Number of a new value with the shape and axes of another tensor."""
        axes = self.axes(like)
        number = self.same_value(tensor, self.number_of_any(like))
        self.bind(tensor, number, axes)
        return number

    def is_flat(self, tensor: Tensor) -> bool:
        """Whether a value is flattened to features (N, C·T) or (N, C·H·W), channel by channel."""
        is_usual = id(tensor) not in self._axes
        return is_usual and tensor.dim() == 2 and self.values[self.number_of_any(tensor)][1] > 1


Handler = Callable[[OperationRecorder, tuple[Any, ...], dict[str, Any], Tensor], None]


class _Watch(TorchFunctionMode):
    """Mode passing every operation to its handler."""

    def __init__(self, recorder: OperationRecorder, handlers: dict[str, Handler]) -> None:
        super().__init__()
        self._recorder = recorder
        self._handlers = handlers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", name)
        name = name.strip("_") if name.startswith("__") else name.rstrip("_")
        if name in _PROPERTIES:
            return func(*args, **kwargs)
        handler = self._handlers.get(name)
        if handler is None:
            raise UnknownError(name)
        call_args = args
        if name in RECURRENT and len(args) > DROPPED:
            call_args = (*args[:DROPPED], 0.0, *args[DROPPED + 1 :])
        out = args[0].clone() if name in _DRAWING else func(*call_args, **kwargs)
        handler(self._recorder, args, kwargs, out)
        return out


def trace_operations(
    model: nn.Module,
    input_shape: tuple[int, ...],
    training: bool,
    handlers: dict[str, Handler],
    tokens: bool = False,
) -> Network:
    """Operations of a model on windows of a shape.

    Args:
        model: any model; its mode is restored.
        input_shape: (C, T) or (C, H, W); (T,) for tokens, (C,) for features.
        training: whether to call it in training mode.
        handlers: name of a PyTorch operation → its handler.
        tokens: whether windows are int64 tokens.

    Raises:
        UnknownError: the model has unsupported operations.
    """
    if len(input_shape) not in ((1,) if tokens else (1, 2, 3)):
        raise UnknownError(f"inputs of shape {input_shape}")
    was_training = model.training
    model.train(training)
    try:
        first, second = (_trace_batch(model, input_shape, batch, handlers, tokens) for batch in _BATCHES)
    finally:
        model.train(was_training)
    if first != second:
        raise UnknownError("a network that depends on the number of windows in a batch")
    return first


def _trace_batch(
    model: nn.Module, input_shape: tuple[int, ...], batch: int, handlers: dict[str, Handler], tokens: bool
) -> Network:
    """Operations of the model for one batch size."""
    entries = {name: entry.detach() for name, entry in model.named_parameters()}
    entries |= {name: entry.clone() for name, entry in model.named_buffers()}
    recorder = OperationRecorder(batch, {id(entry): name for name, entry in entries.items()})
    x = torch.zeros((batch, *input_shape), dtype=torch.int64 if tokens else torch.float32)
    if tokens:
        recorder.bind(x, recorder.add_value(1, *input_shape), ("N", "T"))
    else:
        recorder.new_value(x)
    with _layers_of(model) as layers:
        try:
            with torch.no_grad(), _Watch(recorder, handlers):
                logits = answer_with(model, entries, x)
            number = recorder.number(logits)
            if recorder.axes(logits) != ("N", "C"):
                raise UnknownError(f"it returns a tensor of shape {tuple(logits.shape)}")
        except UnknownError as unknown:
            raise UnknownError(_location(layers, model, str(unknown))) from None
        except (Exception, SystemExit) as error:  # from the user's forward
            problem = f"{type(error).__name__} while it is watched"
            raise UnknownError(_location(layers, model, problem)) from error
    return Network(tuple(recorder.values), tuple(recorder.nodes), number, tuple(recorder.counters))


def answer_with(model: nn.Module, entries: dict[str, Tensor], x: Tensor) -> Tensor:
    """Output of a model with other parameters and buffers for x (N, …); the model is unchanged.

    Every layer is changed and restored once, even if it has several names: `torch.func.functional_call`
    leaves tensors of the call in layers with a second name.

    Args:
        model: any model.
        entries: entries by their first names; those replaced by the call are replaced here, too.
        x: inputs of the model.
    """
    tensors = dict(chain(model.named_parameters(), model.named_buffers()))
    replacements = {id(tensors[name]): entry for name, entry in entries.items()}
    tables: list[dict[str, Any]] = [
        t for layer in model.modules() for t in (layer._parameters, layer._buffers)
    ]
    saved = [dict(table) for table in tables]
    for table in tables:
        table.update({key: replacements.get(id(entry), entry) for key, entry in table.items()})
    try:
        answer: Tensor = model(x)
        current = dict(chain(model.named_parameters(), model.named_buffers()))
        entries.update({name: current[name] for name in entries if name in current})
    finally:
        for table, restored in zip(tables, saved, strict=True):
            table.update(restored)
    return answer


def _location(layers: list[str], model: nn.Module, problem: str) -> str:
    """The layer in which a call failed, and its operation, in words."""
    name = layers[-1] if layers else ""
    kind = type(model.get_submodule(name)).__name__
    return f"layer {name} ({kind}: {problem})" if name else f"the network itself ({kind}: {problem})"


def _leave_layer(layers: list[str]) -> None:
    """Record the end of a layer's call."""
    layers.pop()


@contextlib.contextmanager
def _layers_of(model: nn.Module) -> Iterator[list[str]]:
    """Context with the names of the layers being called, innermost last."""
    layers: list[str] = []
    hooks = []
    for name, layer in model.named_modules():
        hooks.append(layer.register_forward_pre_hook(lambda *_, name=name: layers.append(name)))
        hooks.append(layer.register_forward_hook(lambda *_: _leave_layer(layers)))
    try:
        yield layers
    finally:
        for hook in hooks:
            hook.remove()
