"""Handlers of operations on sequences, and on axes in another order (`fedge.native.operations`).

Recurrent layers, LayerNorm, GroupNorm and embeddings; selected steps and channels, concatenated channels,
permuted axes. Shape letters: N windows, C channels, T steps.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from fedge.native.trace import Handler, Node, OperationRecorder, UnknownError

_STEPS = ("N", "T", "C")
_STEPS_FIRST = ("T", "N", "C")
_LAYER_NORM = {"input": None, "normalized_shape": None, "weight": None, "bias": None, "eps": 1e-5}
_GROUP_NORM = {"input": None, "num_groups": None, "weight": None, "bias": None, "eps": 1e-5}
_INSTANCE_NORM = {
    "input": None, "running_mean": None, "running_var": None, "weight": None, "bias": None, "use_input_stats":
    True, "momentum": 0.1, "eps": 1e-5,
}  # fmt: skip
_EMBEDDING = {
    "input": None, "weight": None, "padding_idx": None, "max_norm": None, "norm_type": 2.0,
    "scale_grad_by_freq": False, "sparse": False,
}  # fmt: skip


def bind_arguments(names: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, with defaults.

    Raises:
        UnknownError: there are unknown arguments.
    """
    if len(args) > len(names) or not kwargs.keys() <= names.keys():
        raise UnknownError("it has unknown arguments")
    return {**names, **dict(zip(names, args, strict=False)), **kwargs}


def require(condition: bool, feature: str) -> None:
    """Raise UnknownError with the unsupported feature, unless `condition` holds."""
    if not condition:
        raise UnknownError(feature)


# --- recurrent layers -------------------------------------------------------------------------------------


def _recurrent(kind: str) -> Handler:
    """Handler of GRU or LSTM: a node for each direction of each layer."""

    def handler(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        require(len(args) == 9 and not kwargs and isinstance(args[2], (list, tuple)), "packed sequences")
        x, start, weights, has_bias, layers, rate, training, is_bidirectional, batch_first = args
        for state in start if isinstance(start, (list, tuple)) else (start,):
            require(recorder.is_zeros(state), "an initial state other than zero")
        axes = _STEPS if batch_first else _STEPS_FIRST
        value = recorder.number_of_any(x)
        require(recorder.axes(x) == axes, f"axes {', '.join(recorder.axes(x))}")
        per_direction = 4 if has_bias else 2
        directions = 2 if is_bidirectional else 1
        require(len(weights) == per_direction * layers * directions, "a projection of its state")
        states: list[tuple[int, int] | None] = []
        for layer in range(layers):
            if layer and training and rate:
                value = _drop_between(recorder, value, float(rate))
            outputs = []
            for direction in range(directions):
                first = (layer * directions + direction) * per_direction
                names = [recorder.name(weight) for weight in weights[first : first + per_direction]]
                hidden = weights[first + 1].shape[1]
                outputs.append(
                    _record_direction(recorder, kind, value, hidden, names, backwards=direction == 1)
                )
                steps = recorder.values[value][1]
                states.append((outputs[-1], 0 if direction else steps - 1))
            value = outputs[0] if len(outputs) == 1 else _join(recorder, *outputs)
        recorder.bind(out[0], value, axes)
        recorder.bind_states(out[1], states)
        if kind == "lstm":
            recorder.bind_states(out[2], [None] * len(states))

    return handler


def _record_direction(
    recorder: OperationRecorder, kind: str, value: int, hidden: int, names: list[str], backwards: bool
) -> int:
    """Value of one direction of one layer; `names` are the weights of input and state, then their biases."""
    weight, state_weight, bias, state_bias = [*names, "", ""][:4]
    output = recorder.add_value(hidden, recorder.values[value][1])
    recorder.nodes.append(
        Node(kind, (value,), output, weight, bias, flag=backwards, state=(state_weight, state_bias))
    )
    return output


def _drop_between(recorder: OperationRecorder, value: int, rate: float) -> int:
    """Dropout between two layers, which PyTorch draws step by step."""
    require(rate < 1, "dropout of everything")
    output = recorder.add_value(*recorder.values[value])
    recorder.nodes.append(Node("drop", (value,), output, numbers=(rate, 0.0), order="TNC"))
    return output


def _join(recorder: OperationRecorder, first: int, second: int) -> int:
    """Concatenated channels of two values."""
    (channels, steps), (more_channels, _) = recorder.values[first], recorder.values[second]
    output = recorder.add_value(channels + more_channels, steps)
    recorder.nodes.append(Node("join", (first, second), output))
    return output


def _zeros(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    """Record a tensor of zeros."""
    recorder.bind_zeros(out)


# --- norms and embeddings ---------------------------------------------------------------------------------


def _layer_norm(
    recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
) -> None:
    a = bind_arguments(_LAYER_NORM, args, kwargs)
    value, axes = recorder.number_of_any(a["input"]), recorder.axes(a["input"])
    channels, steps = recorder.values[value]
    length = math.prod(a["normalized_shape"])
    by_step = axes[-1] == "C" and len(a["normalized_shape"]) == 1
    by_window = axes[0] == "N" and axes[-1] != "C" and axes[-1] != "TC" and length == channels * steps
    require(by_step or by_window, f"a LayerNorm over some of the axes {', '.join(axes)}")
    names = recorder.name(a["weight"]), recorder.name(a["bias"])
    output = recorder.same_axes(out, a["input"])
    recorder.nodes.append(Node("row_norm", (value,), output, *names, size=length, numbers=(float(a["eps"]),)))


def _group_norm(
    recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
) -> None:
    a = bind_arguments(_GROUP_NORM, args, kwargs)
    _record_group_norm(recorder, a, int(a["num_groups"]), out)


def _instance_norm(
    recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
) -> None:
    """Record an instance norm as a GroupNorm with one channel per group."""
    a = bind_arguments(_INSTANCE_NORM, args, kwargs)
    require(a["running_mean"] is None and bool(a["use_input_stats"]), "running statistics of a window")
    _record_group_norm(recorder, a, a["input"].shape[1], out)


def _record_group_norm(recorder: OperationRecorder, a: dict[str, Any], groups: int, out: Tensor) -> None:
    value = recorder.number(a["input"])
    require(not recorder.is_flat(a["input"]), "a GroupNorm of features that were series")
    names = recorder.name(a["weight"]), recorder.name(a["bias"])
    output = recorder.same_axes(out, a["input"])
    recorder.nodes.append(
        Node("group_norm", (value,), output, *names, size=groups, numbers=(float(a["eps"]),))
    )


def _embedding(
    recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
) -> None:
    a = bind_arguments(_EMBEDDING, args, kwargs)
    value = recorder.number_of_any(a["input"])
    require(recorder.axes(a["input"]) == ("N", "T"), "an embedding of other values than tokens")
    require(a["max_norm"] is None and not a["scale_grad_by_freq"], "rows that are scaled")
    require(not a["sparse"], "sparse gradients")
    weight = recorder.name(a["weight"])
    output = recorder.add_value(out.shape[-1], recorder.values[value][1])
    recorder.bind(out, output, _STEPS)
    padding_row = -1 if a["padding_idx"] is None else int(a["padding_idx"])
    recorder.nodes.append(Node("embed", (value,), output, weight, padding=padding_row))


# --- parts and axes ---------------------------------------------------------------------------------------


def _getitem(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    """Record the selection of steps and channels by numbers and ranges."""
    tensor, index = args
    states = recorder.states(tensor)
    if states is not None:
        require(isinstance(index, int), "states picked by more than a number")
        return _record_state(recorder, states[index], out)
    require(id(tensor) not in recorder.names, "getitem of weights")
    value, axes = recorder.number_of_any(tensor), recorder.axes(tensor)
    parts = _ranges(index, tensor)
    kept_axes = tuple(name for name, (_, _, is_kept) in zip(axes, parts, strict=True) if is_kept)
    require("N" in kept_axes, "windows picked from a batch")
    channels, steps = recorder.values[value]
    first = {"C": 0, "T": 0}
    count = {"C": channels, "T": steps}
    for name, size, (begin, length, is_kept) in zip(axes, tensor.shape, parts, strict=True):
        if (begin, length) != (0, size) or not is_kept:
            require(name == "T" or (name == "C" and is_kept), f"a part of axis {name}")
            first[name], count[name] = begin, length
    output = recorder.add_value(count["C"], count["T"])
    recorder.bind(out, output, kept_axes)
    recorder.nodes.append(Node("pick", (value,), output, size=first["T"], stride=first["C"]))
    return None


def _ranges(index: Any, tensor: Tensor) -> list[tuple[int, int, bool]]:
    """For each axis: first index, number of indices, and whether the axis is kept."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any(item is Ellipsis for item in items):
        (position,) = (i for i, item in enumerate(items) if item is Ellipsis)
        items[position : position + 1] = [slice(None)] * (tensor.dim() - len(items) + 1)
    items += [slice(None)] * (tensor.dim() - len(items))
    ranges = []
    for item, size in zip(items, tensor.shape, strict=True):
        if isinstance(item, slice):
            begin, end, step = item.indices(size)
            require(step == 1 and end > begin, "a part in steps")
            ranges.append((begin, end - begin, True))
        else:
            require(isinstance(item, int) and not isinstance(item, bool), "a part by numbers of a tensor")
            ranges.append((item % size, 1, False))
    return ranges


def _record_state(recorder: OperationRecorder, state: tuple[int, int] | None, out: Tensor) -> None:
    """Record a recurrent layer's state after its last step."""
    if state is None:
        raise UnknownError("the cell's last state")
    value, step = state
    output = recorder.add_value(recorder.values[value][0], 1)
    recorder.bind(out, output, ("N", "C"))
    recorder.nodes.append(Node("pick", (value,), output, size=step, stride=0))


def _cat(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    """Record values concatenated by channels."""
    a = bind_arguments({"tensors": None, "dim": 0}, args, kwargs)
    tensors = a["tensors"]
    axes = {recorder.axes(tensor) for tensor in tensors if recorder.number_of_any(tensor) >= 0}
    require(len(axes) == 1 and len(tensors) > 1, "values of different axes side by side")
    (names,) = axes
    require(names[a["dim"]] == "C", f"values side by side along {names[a['dim']]}")
    numbers = [recorder.number_of_any(tensor) for tensor in tensors]
    require(len(set(numbers)) == len(numbers), "a value beside itself")
    joined = numbers[0]
    for number in numbers[1:]:
        joined = _join(recorder, joined, number)
    recorder.bind(out, joined, names)


def _permutation(is_swap: bool) -> Handler:
    """Handler of permuted axes, two or all of them: the same value with other axis names."""

    def handler(
        recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> None:
        require(not kwargs, "axes by name")
        tensor, *places = args
        if len(places) == 1:
            places = list(places[0])
        value, axes = recorder.number_of_any(tensor), recorder.axes(tensor)
        require("CT" not in axes and "TC" not in axes, "features that were series, in another order")
        if is_swap:
            names = list(axes)
            first, second = places
            names[first], names[second] = names[second], names[first]
        else:
            names = [axes[place] for place in places]
        recorder.bind(out, value, tuple(names))

    return handler


def record_reshape(recorder: OperationRecorder, tensor: Any, out: Tensor) -> bool:
    """Record a reshape of a state, or of steps by channels; returns whether `out` was one."""
    states = recorder.states(tensor)
    if states is not None:
        require(
            len(states) == 1 and out.dim() == 2 and out.shape == tensor.shape[1:], "states in a new shape"
        )
        _record_state(recorder, states[0], out)
        return True
    if id(tensor) in recorder.names or recorder.axes(tensor) != _STEPS:
        return False
    value = recorder.number_of_any(tensor)
    channels, steps = recorder.values[value]
    if tuple(out.shape) == tuple(tensor.shape):
        recorder.bind(out, value, _STEPS)
        return True
    require(
        out.dim() == 2 and tuple(out.shape) == (recorder.batch, steps * channels), f"shape {tuple(out.shape)}"
    )
    recorder.bind(out, value, ("N", "TC") if steps > 1 else ("N", "C"))
    return True


def time_axis(recorder: OperationRecorder, tensor: Tensor, dim: Any) -> int | None:
    """Axis of steps in values (N, T, F) or (T, N, F), if `dim` is exactly that axis; else None."""
    axes = recorder.axes(tensor) if recorder.number_of_any(tensor) >= 0 else ()
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    if axes in (_STEPS, _STEPS_FIRST) and len(dims) == 1 and isinstance(dims[0], int):
        axis = dims[0] % len(axes)
        require(axes[axis] == "T", f"a sum over axis {axes[axis]}")
        return axis
    return None


def _maximum(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Record the maximum over all steps."""
    a = bind_arguments({"input": None, "dim": None, "keepdim": False}, args, kwargs)
    tensor = a["input"]
    value = recorder.number_of_any(tensor)
    axis = time_axis(recorder, tensor, a["dim"])
    if axis is None:
        over_steps = isinstance(a["dim"], int) and a["dim"] % tensor.dim() == 2
        require(recorder.axes(tensor) == ("N", "C", "T") and over_steps, "a maximum over other axes")
    require(not a["keepdim"], "a maximum that keeps its axis")
    channels, steps = recorder.values[value]
    require(steps < 255, "a pool of 255 steps or more")
    output = recorder.add_value(channels, 1)
    recorder.bind(out if isinstance(out, Tensor) else out[0], output, ("N", "C"))
    recorder.nodes.append(Node("max_pool", (value,), output, size=steps, stride=steps))


SEQUENCES: dict[str, Handler] = {
    "gru": _recurrent("gru"),
    "lstm": _recurrent("lstm"),
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "embedding": _embedding,
    "getitem": _getitem,
    "cat": _cat,
    "concat": _cat,
    "concatenate": _cat,
    "max": _maximum,
    "permute": _permutation(is_swap=False),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), _permutation(is_swap=True)),
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like"), _zeros),
}
