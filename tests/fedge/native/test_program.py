"""Networks as numbers: what is joined, what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from fedge.native.operations import HANDLERS
from fedge.native.program import DropoutLayer, dropouts_of, encoded, entries_of, fuse_relus
from fedge.native.trace import UnknownError, trace_operations


def traced(*layers, shape=(3, 8)):
    """Operations of a sequence of layers on windows of a shape."""
    return trace_operations(nn.Sequential(*layers), shape, True, HANDLERS)


def test_relu_becomes_a_part_of_its_neighbours():
    """Of the maximum after it, or else of the layer before it; never of a dropout."""
    network = traced(
        nn.Conv1d(3, 4, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(4, 4, 1), nn.ReLU(), nn.Dropout(),
        nn.ReLU(), nn.Flatten(), nn.Linear(12, 2),
    )  # fmt: skip
    nodes = fuse_relus(network)
    assert [(n.kind, n.flag) for n in nodes] == [
        ("conv", False), ("max_pool", True), ("conv", True),
        ("drop", False), ("relu", False), ("linear", False),
    ]  # fmt: skip


def test_relu_stays_where_its_input_has_another_use():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv1d(3, 3, 3, padding=1), nn.Linear(24, 2)

        def forward(self, x):
            y = self.conv(x)
            return self.head((y + torch.relu(y)).flatten(1))

    kinds = [node.kind for node in fuse_relus(trace_operations(Two(), (3, 8), True, HANDLERS))]
    assert kinds == ["conv", "relu", "add", "linear"]


def test_dropouts_are_listed_as_they_draw():
    network = traced(nn.Dropout1d(0.2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(24, 2))
    assert dropouts_of(network) == [
        DropoutLayer(3, 8, 0.2, True, False),
        DropoutLayer(3, 8, 0.5, False, True),
    ]
    assert [drop.mask_bytes for drop in dropouts_of(network)] == [3, 24]


def test_entries_lie_one_after_another():
    entries = entries_of({"a": (2, 3), "b": (4,)}, {"frozen": (5,)})
    assert (entries.offsets, entries.trainable, entries.floats) == ({"a": 0, "b": 6, "frozen": 10}, 10, 15)


def test_a_parameter_of_two_uses_is_refused():
    layer = nn.Conv1d(3, 3, 1)
    network = traced(layer, layer, nn.Flatten(), nn.Linear(24, 2))
    weights = entries_of({"0.weight": (3, 3, 1), "0.bias": (3,), "3.weight": (2, 24), "3.bias": (2,)}, {})
    with pytest.raises(UnknownError, match=r"parameter 0\.weight \(it is used twice\)"):
        encoded(network, weights, entries_of({}, {}), True)


def test_a_program_begins_with_its_sizes():
    network = traced(nn.Flatten(), nn.Linear(24, 2))
    weights = entries_of({"1.weight": (2, 24), "1.bias": (2,)}, {})
    words = encoded(network, weights, entries_of({}, {}), True)
    assert words.dtype == np.int64
    assert words[:7].tolist() == [1, 0, 1, 50, 50, 0, 0]
    assert words[7:12].tolist() == [2, 3, 8, 2, 1]
