"""A network in the native step's encoding: whole numbers, with operations fused if that saves work.

The order of the numbers is that of `Program::read` in src/program.cpp; src/program.h defines their meaning.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedge.native.trace import Network, Node, UnknownError

_KINDS = (
    "conv", "linear", "norm", "fixed_norm", "relu", "gelu", "max_pool", "mean_pool", "mean_all", "drop",
    "add", "image_conv", "image_max_pool", "image_mean_pool", "sigmoid", "tanh", "silu", "row_norm",
    "group_norm", "pick", "join", "gru", "lstm", "embed",
)  # fmt: skip
_VECTOR, _CONV, _LINEAR = range(3)
_MATRICES = {"conv": _CONV, "image_conv": _CONV, "linear": _LINEAR, "gru": _CONV, "lstm": _CONV}  # of weights
_TAKE_RELU = (
    "conv",
    "linear",
    "norm",
    "fixed_norm",
    "image_conv",
    "group_norm",
)  # layers that can be fused with a following ReLU
_TAKE_RELU_FIRST = ("max_pool", "image_max_pool")  # fused with a preceding ReLU


@dataclass(frozen=True)
class DropoutLayer:
    """One dropout of a program, in the order in which PyTorch draws.

    Attributes:
        channels, steps: size of the value.
        rate: share of dropped numbers.
        whole_channels: whether to draw once per channel.
        flat: whether the value is flattened to features, channel by channel.
        order: axes in the order of PyTorch's draws: "NCT", "NTC" or "TNC".
    """

    channels: int
    steps: int
    rate: float
    whole_channels: bool
    flat: bool
    order: str = "NCT"

    @property
    def mask_bytes(self) -> int:
        """Bytes of one window's mask."""
        return self.channels * (1 if self.whole_channels else self.steps)


@dataclass(frozen=True)
class Entries:
    """Parameters or buffers of a network, and the offset of each in one flat float array.

    Attributes:
        shapes: name → shape, trainable ones first.
        trainable: number of trainable floats.
        offsets: name → offset.
        floats: total number of floats.
    """

    shapes: Mapping[str, tuple[int, ...]]
    trainable: int
    offsets: Mapping[str, int]
    floats: int


def entries_of(trained: Mapping[str, tuple[int, ...]], frozen: Mapping[str, tuple[int, ...]]) -> Entries:
    """Layout of entries, given as name → shape."""
    offsets, offset = {}, 0
    sizes = {name: int(np.prod(shape, dtype=np.int64)) for name, shape in {**trained, **frozen}.items()}
    for name, size in sizes.items():
        offsets[name] = offset
        offset += size
    return Entries({**trained, **frozen}, sum(sizes[name] for name in trained), offsets, offset)


def fuse_relus(network: Network) -> list[Node]:
    """Operations with each ReLU fused into the preceding layer or the following maximum, if possible."""
    nodes = list(network.nodes)
    uses = Counter(value for node in nodes for value in node.inputs)
    uses[network.logits] += 1
    makers = {node.output: i for i, node in enumerate(nodes)}
    users = {value: i for i, node in enumerate(nodes) for value in node.inputs}
    for i, node in enumerate(nodes):
        if node.kind != "relu":
            continue
        maker, user = makers.get(node.inputs[0]), users.get(node.output)
        if uses[node.output] == 1 and user is not None and nodes[user].kind in _TAKE_RELU_FIRST:
            nodes[user] = replace(nodes[user], inputs=node.inputs, flag=True)
        elif maker is not None and uses[node.inputs[0]] == 1 and nodes[maker].kind in _TAKE_RELU:
            nodes[maker] = replace(nodes[maker], output=node.output, flag=True)
            makers[node.output] = maker
        else:
            continue
        nodes[i] = replace(node, kind="joined")
    return [node for node in nodes if node.kind != "joined"]


def dropouts_of(network: Network) -> list[DropoutLayer]:
    """Dropouts of a network."""
    return [
        DropoutLayer(
            *network.values[node.output], node.numbers[0], node.flag, bool(node.numbers[1]), node.order
        )
        for node in network.nodes
        if node.kind == "drop"
    ]


def encoded(network: Network, weights: Entries, buffers: Entries, training: bool) -> np.ndarray:
    """A network encoded as numbers, (n,) int64.

    Args:
        network: its operations.
        weights: its parameters.
        buffers: its running means and variances; a layer's variance follows its mean.
        training: whether the network is to be trained.

    Raises:
        UnknownError: a parameter is used twice.
    """
    nodes = fuse_relus(network)
    names = _parameter_kinds(nodes, network)
    numbers = {name: i for i, name in enumerate(names)}
    masks = sum(drop.mask_bytes for drop in dropouts_of(network))
    words = [int(training), 0, network.logits, weights.trainable, weights.floats, buffers.floats, masks]
    words += [len(network.values), *(size for value in network.values for size in value)]
    words.append(len(names))
    for name, kind in names.items():
        words += [kind, weights.offsets[name], *_sizes(kind, weights.shapes[name], name, nodes, network)]
    words.append(len(nodes))
    for node in nodes:
        words += _encode_operation(node, numbers, buffers)
    return np.array(words, np.int64)


def _parameter_kinds(nodes: Sequence[Node], network: Network) -> dict[str, int]:
    """Name → kind of every parameter used by an operation."""
    kinds: dict[str, int] = {}
    for node in nodes:
        matrix, bias = _MATRICES.get(node.kind, _VECTOR), _VECTOR
        if node.kind == "row_norm" and node.size > network.values[node.inputs[0]][0]:
            matrix = bias = _LINEAR  # applied to each number of a window
        for name, kind in (
            (node.weight, matrix), (node.bias, bias), (node.state[0], _CONV), (node.state[1], _VECTOR),
        ):  # fmt: skip
            if name in kinds:
                raise UnknownError(f"parameter {name} (it is used twice)")
            if name:
                kinds[name] = kind
    return kinds


def _sizes(
    kind: int, shape: tuple[int, ...], name: str, nodes: Sequence[Node], network: Network
) -> Sequence[int]:
    """The three sizes of a parameter, as in `Parameter` of src/program.h."""
    if kind == _CONV:
        return shape[0], shape[1], math.prod(shape[2:])
    (node,) = (node for node in nodes if name in (node.weight, node.bias, *node.state))
    channels, steps = network.values[node.inputs[0]]
    if kind == _LINEAR and node.kind == "row_norm":
        return 1, channels, steps
    if kind == _LINEAR:
        return (shape[0], shape[1], 1) if node.size else (shape[0], channels, steps)
    return shape[0], math.prod(shape[1:]), 1


def _encode_operation(node: Node, numbers: Mapping[str, int], buffers: Entries) -> list[int]:
    """Encoding of one operation."""
    second = node.inputs[1] if len(node.inputs) > 1 else -1
    scales = [*node.numbers, 0.0, 0.0][:2]
    if node.kind == "drop":
        scales = [1.0 / (1.0 - node.numbers[0]), 0.0]
    has_relu = node.flag and node.kind in (*_TAKE_RELU, *_TAKE_RELU_FIRST)
    flag = node.flag and node.kind in ("gelu", "drop")
    flag |= node.flag and node.kind in ("gru", "lstm")
    buffer = buffers.offsets[node.buffers[0]] if node.buffers else -1
    return [
        _KINDS.index(node.kind), node.inputs[0], second, node.output,
        numbers.get(node.weight, -1), numbers.get(node.bias, -1),
        node.size, node.stride, node.padding, int(has_relu), buffer, int(flag),
        *(struct.unpack("<q", struct.pack("<d", scale))[0] for scale in scales),
        *(node.lines or (0, 0, 0, 0)), numbers.get(node.state[0], -1), numbers.get(node.state[1], -1),
    ]  # fmt: skip
