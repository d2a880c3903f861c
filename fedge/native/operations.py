"""Operations of the native step, and handlers to record them (`fedge.native.trace`).

A handler is called with the arguments of an operation and its result. Names are those of PyTorch's functions
and methods, without the trailing underscore of in-place ones; `relu_max_pool2` is Fedge's own
(`fedge.training.networks.layout`).

Shape letters: N windows, C channels, T samples, H × W pixels. Series are (N, C, T), or (N, C, 1, T) as in
`fedge.training.networks.layout`; images are (N, C, H, W), features (N, F). An image with a single line is a
series unless taps reach across lines.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from fedge.native.sequences import SEQUENCES, bind_arguments, record_reshape, require, time_axis
from fedge.native.taps import Taps, pair_of, taps_of
from fedge.native.trace import Handler, Node, OperationRecorder, UnknownError

_CONV = {"input": None, "weight": None, "bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_LINEAR = {"input": None, "weight": None, "bias": None}
_NORM = {
    "input": None, "running_mean": None, "running_var": None, "weight": None, "bias": None, "training": False,
    "momentum": 0.1, "eps": 1e-5,
}  # fmt: skip
_MAX_POOL = {
    "input": None, "kernel_size": None, "stride": None, "padding": 0, "dilation": 1, "ceil_mode": False,
    "return_indices": False,
}  # fmt: skip
_MEAN_POOL = {
    "input": None, "kernel_size": None, "stride": None, "padding": 0, "ceil_mode": False, "count_include_pad":
    True, "divisor_override": None,
}  # fmt: skip
_DROP = {"input": None, "p": 0.5, "training": True, "inplace": False}


def _time_argument(value: Any, label: str, across: int) -> int:
    """Argument along time, given for one or two axes; along the other axis it must be `across`."""
    if isinstance(value, (tuple, list)):
        if len(value) == 2 and value[0] != across:
            raise UnknownError(f"{label} {value}")
        value = value[-1]
    if not isinstance(value, int):
        raise UnknownError(f"{label} {value}")
    return value


def _series_value(recorder: OperationRecorder, tensor: Any) -> int:
    """Value number of a tensor with channels and time, or pixels."""
    number = recorder.number(tensor)
    require(tensor.dim() > 2, "its input is not a series")
    return number


def _conv(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    a = bind_arguments(_CONV, args, kwargs)
    value = _series_value(recorder, a["input"])
    if a["input"].dim() == 4 and a["weight"].dim() == 4:
        taps = taps_of(a, tuple(a["weight"].shape[2:]))
        if taps.need_lines(a["input"]):
            return _image_conv(recorder, a, value, taps, out)
    size = _time_argument(tuple(a["weight"].shape[2:]), "size", across=1)
    require(_time_argument(a["dilation"], "dilation", across=1) == 1, "dilation")
    require(a["groups"] == 1, "groups")
    stride = _time_argument(a["stride"], "stride", across=1)
    padding = a["padding"]
    if isinstance(padding, str):
        padding = (size - 1) // 2 if padding == "same" else 0
    padding = _time_argument(padding, "padding", across=0)
    names = recorder.name(a["weight"]), recorder.name(a["bias"])
    output = recorder.new_value(out)
    recorder.nodes.append(Node("conv", (value,), output, *names, size=size, stride=stride, padding=padding))
    return None


def _image_conv(recorder: OperationRecorder, a: dict[str, Any], value: int, taps: Taps, out: Tensor) -> None:
    """Record a convolution of an image; a 1 × 1 convolution is recorded as one of a series."""
    require(a["groups"] == 1, "groups")
    names = recorder.name(a["weight"]), recorder.name(a["bias"])
    output = recorder.new_value(out)
    if taps == Taps((1, 1), (1, 1), (0, 0)):
        recorder.nodes.append(Node("conv", (value,), output, *names, size=1))
        return
    fields = taps.over_lines(a["input"])
    recorder.nodes.append(Node("image_conv", (value,), output, *names, **fields))


def _linear(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    """Record a linear layer on features, or on the channels of each step as a convolution of one tap."""
    a = bind_arguments(_LINEAR, args, kwargs)
    value = recorder.number_of_any(a["input"])
    axes = recorder.axes(a["input"])
    names = recorder.name(a["weight"]), recorder.name(a["bias"])
    if len(axes) == 2:
        rows = axes == ("N", "TC")  # by step, not by channel
        require(rows or axes in (("N", "C"), ("N", "CT")), "a linear layer over time")
        recorder.nodes.append(Node("linear", (value,), recorder.new_value(out), *names, size=int(rows)))
        return
    require((axes[0] == "N" and axes[-1] == "C") or axes == ("T", "N", "C"), "a linear layer over time")
    output = recorder.add_value(out.shape[-1], recorder.values[value][1])
    recorder.bind(out, output, axes)
    recorder.nodes.append(Node("conv", (value,), output, *names, size=1))


def _norm(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    a = bind_arguments(_NORM, args, kwargs)
    value = recorder.number(a["input"])
    require(not recorder.is_flat(a["input"]), "BatchNorm of features that were series")
    names = recorder.name(a["weight"]), recorder.name(a["bias"])
    running = (recorder.name(a["running_mean"]), recorder.name(a["running_var"]))
    require(all(running), "BatchNorm without running statistics")
    require(a["momentum"] is not None, "BatchNorm without momentum")
    output = recorder.same_value(out, value)
    kind = "norm" if a["training"] else "fixed_norm"
    numbers = (float(a["eps"]), float(a["momentum"]))
    recorder.nodes.append(Node(kind, (value,), output, *names, buffers=running, numbers=numbers))


def _elementwise(kind: str) -> Handler:
    """Handler of an elementwise operation."""

    def handler(
        recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> None:
        flag = False
        if kind == "gelu":
            approximate = kwargs.get("approximate", args[1] if len(args) > 1 else "none")
            flag = approximate == "tanh"
        tensor = args[0] if args else kwargs["input"]
        value = recorder.number_of_any(tensor)
        recorder.nodes.append(Node(kind, (value,), recorder.same_axes(out, tensor), flag=flag))

    return handler


def _draw_order(tensor: Tensor, axes: tuple[str, ...]) -> str:
    """Axes in the order in which PyTorch draws a tensor's dropout, i.e. in memory order."""
    strides = tensor.stride()
    order = sorted(range(len(axes)), key=lambda axis: -strides[axis])
    return "".join(axes[axis] for axis in order)


def _drop(whole_channels: bool) -> Handler:
    """Handler of dropout, of single numbers or of whole channels."""

    def handler(
        recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> None:
        a = bind_arguments(_DROP, args, kwargs)
        if not a["training"] or a["p"] == 0:
            return recorder.alias(out, a["input"])
        require(a["p"] < 1, "dropout of everything")
        value, axes = recorder.number_of_any(a["input"]), recorder.axes(a["input"])
        is_usual = axes in (("N", "C"), ("N", "CT"), ("N", "C", "T"), ("N", "C", "H", "W"))
        require(is_usual or axes in (("N", "T", "C"), ("T", "N", "C")), "dropout of other axes")
        require(
            not whole_channels or (is_usual and a["input"].dim() > 2),
            "dropout of channels where there are none",
        )
        order = "NCT" if is_usual else _draw_order(a["input"], axes)
        output = recorder.same_axes(out, a["input"])
        flat = float(axes == ("N", "CT"))
        recorder.nodes.append(
            Node("drop", (value,), output, flag=whole_channels, numbers=(float(a["p"]), flat), order=order)
        )
        return None

    return handler


def _relu_max_pool2(
    recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
) -> None:
    value = _series_value(recorder, args[0])
    output = recorder.new_value(out)
    recorder.nodes.append(Node("max_pool", (value,), output, size=2, stride=2, flag=True))


def _max_pool(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    a = bind_arguments(_MAX_POOL, args, kwargs)
    require(not a["return_indices"] and not a["ceil_mode"], "pooling with indices or a ceiling")
    require(pair_of(a["dilation"], "dilation") == (1, 1), "dilation")
    _pool(recorder, "max_pool", a, out)


def _mean_pool(
    recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
) -> None:
    a = bind_arguments(_MEAN_POOL, args, kwargs)
    require(not a["ceil_mode"], "pooling with a ceiling")
    require(
        pair_of(a["padding"], "padding") == (0, 0) or a["count_include_pad"],
        "pooling without padding",
    )
    _pool(recorder, "mean_pool", a, out)


def _pool(recorder: OperationRecorder, kind: str, a: dict[str, Any], out: Tensor) -> None:
    """Record pooling over time, or over an image."""
    value = _series_value(recorder, a["input"])
    require(a.get("divisor_override") is None, "pooling with a divisor of its own")
    if a["input"].dim() == 4:
        taps = taps_of(a, pair_of(a["kernel_size"], "size"))
        if taps.need_lines(a["input"]):
            return _image_pool(recorder, kind, value, a["input"], taps, out)
    size = _time_argument(a["kernel_size"], "size", across=1)
    stride = size if a["stride"] in (None, []) else _time_argument(a["stride"], "stride", across=1)
    padding = _time_argument(a["padding"], "padding", across=0)
    require(size < 255, "a pool of 255 steps or more")
    output = recorder.new_value(out)
    numbers = (1.0 / size,) if kind == "mean_pool" else ()
    recorder.nodes.append(
        Node(kind, (value,), output, size=size, stride=stride, padding=padding, numbers=numbers)
    )
    return None


def _image_pool(
    recorder: OperationRecorder, kind: str, value: int, image: Tensor, taps: Taps, out: Tensor
) -> None:
    """Record pooling over lines and steps."""
    pixels = math.prod(taps.size)
    require(pixels < 255, "a pool of 255 pixels or more")
    numbers = (1.0 / pixels,) if kind == "mean_pool" else ()
    fields = taps.over_lines(image)
    recorder.nodes.append(Node(f"image_{kind}", (value,), recorder.new_value(out), numbers=numbers, **fields))


def _adaptive_mean(
    recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
) -> None:
    tensor = args[0] if args else kwargs["input"]
    _adaptive(recorder, "mean_pool", _series_value(recorder, tensor), tensor, out)


def _adaptive_max(
    recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> None:
    require(isinstance(out, Tensor), "pooling with indices")
    tensor = args[0] if args else kwargs["input"]
    _adaptive(recorder, "max_pool", _series_value(recorder, tensor), tensor, out)


def _adaptive(recorder: OperationRecorder, kind: str, value: int, tensor: Tensor, out: Tensor) -> None:
    """Record pooling to a number of steps, or of pixels each way, that divides the input's."""
    steps, pooled_steps = recorder.values[value][1], out.shape[-1]
    if kind == "mean_pool" and out.shape[2:].numel() == 1:
        recorder.nodes.append(Node("mean_all", (value,), recorder.new_value(out), numbers=(1.0 / steps,)))
        return
    if tensor.dim() == 4 and tensor.shape[2] > 1:
        _image_pool(recorder, kind, value, tensor, _adaptive_taps(tensor, out), out)
        return
    require(steps % pooled_steps == 0, f"adaptive pooling of {steps} steps to {pooled_steps}")
    size = steps // pooled_steps
    require(size < 255, "a pool of 255 steps or more")
    numbers = (1.0 / size,) if kind == "mean_pool" else ()
    recorder.nodes.append(
        Node(kind, (value,), recorder.new_value(out), size=size, stride=size, numbers=numbers)
    )


def _adaptive_taps(tensor: Tensor, out: Tensor) -> Taps:
    """Adjacent taps reducing one image size to another."""
    (height, width), (out_height, out_width) = tensor.shape[2:], out.shape[2:]
    require(
        height % out_height == 0 and width % out_width == 0,
        f"adaptive pooling of {height} × {width} pixels to {out_height} × {out_width}",
    )
    size = (height // out_height, width // out_width)
    return Taps(size, size, (0, 0))


def _reduce(mean: bool) -> Handler:
    """Handler of a mean or sum over all steps or all pixels."""

    def handler(
        recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> None:
        a = bind_arguments({"input": None, "dim": None, "keepdim": False}, args, kwargs)
        if isinstance(a["input"], Tensor) and a["input"].dim() == 3:
            time_dim = time_axis(recorder, a["input"], a["dim"])
            if time_dim is not None:
                value = recorder.number_of_any(a["input"])
                require(out.dim() == 2, "a sum that keeps its axis")
                scale = 1.0 / recorder.values[value][1] if mean else 1.0
                recorder.nodes.append(Node("mean_all", (value,), recorder.new_value(out), numbers=(scale,)))
                return
        value = _series_value(recorder, a["input"])
        rank = a["input"].dim()
        reduced = a["dim"] if isinstance(a["dim"], (tuple, list)) else (a["dim"],)
        require(all(isinstance(axis, int) for axis in reduced), "a sum over all axes")
        axes = {axis % rank for axis in reduced}
        require(rank - 1 in axes and axes <= {2, 3}, f"a sum over axes {sorted(axes)}")
        require(out.numel() == out.shape[0] * out.shape[1], f"a sum over axes {sorted(axes)}")
        scale = 1.0 / recorder.values[value][1] if mean else 1.0
        if out.dim() > 2 and out.shape[2:].numel() != 1:
            raise UnknownError("a sum over some axes")
        recorder.nodes.append(
            Node("mean_all", (value,), _single_step_value(recorder, value, out), numbers=(scale,))
        )

    return handler


def _single_step_value(recorder: OperationRecorder, value: int, out: Tensor) -> int:
    """Number of a new value with a single step."""
    number = recorder.same_value(out, value)
    recorder.values[number] = (recorder.values[value][0], 1)
    return number


def _divide(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    """Record the division of a sum over time by a number: a mean."""
    require(len(args) == 2 and not kwargs and isinstance(args[1], (int, float)), "a quotient of tensors")
    require(math.isfinite(args[1]) and args[1] != 0, "a quotient")
    value = recorder.number(args[0])
    last = recorder.nodes[-1] if recorder.nodes else None
    require(last is not None and last.kind == "mean_all" and last.output == value, "a quotient")
    assert last is not None
    output = recorder.same_value(out, value)
    recorder.nodes[-1] = Node(last.kind, last.inputs, output, numbers=(last.numbers[0] / args[1],))


def _add(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    """Record a residual sum, or a BatchNorm's counter."""
    if len(args) == 2 and id(args[0]) in recorder.names and args[1] == 1:
        recorder.counters.append(recorder.names[id(args[0])])
        return
    require(len(args) == 2 and kwargs.get("alpha", 1) == 1, "a sum with a factor")
    first, second = recorder.number_of_any(args[0]), recorder.number_of_any(args[1])
    require(first != second, "a sum of a value and itself")
    require(
        args[0].shape == args[1].shape and recorder.axes(args[0]) == recorder.axes(args[1]),
        "a sum of different shapes",
    )
    require(recorder.values[first] == recorder.values[second], "a sum of features and series")
    recorder.nodes.append(Node("add", (first, second), recorder.same_axes(out, args[0])))


def _reshape(recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    """Record a reshape without reordering: series, with an axis of one, or features."""
    tensor = args[0] if args else kwargs["input"]
    if record_reshape(recorder, tensor, out):
        return None
    if id(tensor) in recorder.names:  # a convolution's weights, with an axis of one
        require(
            out.dim() == 4 and out.shape[2] == 1 and out.shape[3] == tensor.shape[-1],
            "weights in another shape",
        )
        return recorder.alias(out, tensor)
    channels, steps = recorder.values[recorder.number(tensor)]
    allowed = {(channels, steps), (channels, 1, steps), (channels * steps,), tuple(tensor.shape[1:])}
    if steps == 1:
        allowed |= {(channels, 1), (channels, 1, 1)}
    require(out.shape[0] == recorder.batch and tuple(out.shape[1:]) in allowed, f"shape {tuple(out.shape)}")
    return recorder.alias(out, tensor)


def _unchanged(
    recorder: OperationRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
) -> None:
    """Record an operation that changes no values: a copy, or another memory order."""
    require(out.dtype == args[0].dtype and out.shape == args[0].shape, "another type of number")
    recorder.alias(out, args[0])


HANDLERS: dict[str, Handler] = {
    **SEQUENCES,
    "conv1d": _conv,
    "conv2d": _conv,
    "linear": _linear,
    "batch_norm": _norm,
    "relu": _elementwise("relu"),
    "gelu": _elementwise("gelu"),
    "sigmoid": _elementwise("sigmoid"),
    "tanh": _elementwise("tanh"),
    "silu": _elementwise("silu"),
    "dropout": _drop(whole_channels=False),
    "dropout1d": _drop(whole_channels=True),
    "dropout2d": _drop(whole_channels=True),
    "max_pool1d": _max_pool,
    "max_pool2d": _max_pool,
    "relu_max_pool2": _relu_max_pool2,
    "avg_pool1d": _mean_pool,
    "avg_pool2d": _mean_pool,
    "adaptive_avg_pool1d": _adaptive_mean,
    "adaptive_avg_pool2d": _adaptive_mean,
    "adaptive_max_pool1d": _adaptive_max,
    "adaptive_max_pool2d": _adaptive_max,
    "mean": _reduce(mean=True),
    "sum": _reduce(mean=False),
    "div": _divide,
    "truediv": _divide,
    "true_divide": _divide,
    "add": _add,
    "iadd": _add,
    **dict.fromkeys(("flatten", "view", "reshape", "unsqueeze", "squeeze", "unflatten"), _reshape),
    **dict.fromkeys(("contiguous", "clone", "float", "to", "long"), _unchanged),
}
