"""Windows as a network gets them: a description by hand, and clients that may be compared."""

import numpy as np
import pytest
import torch
from torch import nn

from fedge.training.describe import description_of, directions, length_of, window_description


def test_by_hand():
    """Two directions, two classes: features (0, 0), (2, 4) of class 0 and (4, 8) of class 1; means (2, 4) of
    all and (1, 2) of class 0, deviations √(8/3) and √(32/3), and 1 and 2."""
    found = description_of(np.array([[0.0, 0], [2, 4], [4, 8]]), np.array([0, 0, 1]), 2)
    root = np.sqrt(8 / 3)
    np.testing.assert_allclose(found, [2, 4, root, 2 * root, 1, 2, 1, 2, 4, 8, 0, 0])
    assert len(found) == length_of(2)


def test_a_class_without_windows_is_zero():
    found = description_of(np.ones((2, 3)), np.array([2, 2]), 3)
    assert found[6:18].tolist() == [0.0] * 12
    assert found[18:].tolist() == [1.0] * 3 + [0.0] * 3


def test_directions_are_the_same_everywhere():
    one = directions(7, 3)
    np.testing.assert_array_equal(one, directions(7, 3))
    np.testing.assert_allclose(one.T @ one, np.eye(3), atol=1e-12)
    assert directions(2, 4)[:, 2:].tolist() == [[0, 0], [0, 0]]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.norm(x).flatten(1))


def test_features_are_what_enters_the_last_layer():
    """BatchNorm at its start scales by 1/√(1 + 1e-5) in evaluation mode; the network is left as it was."""
    torch.manual_seed(0)
    net, x, y = Net().train(), torch.randn(600, 2, 2), torch.arange(600) % 2
    before = {name: entry.clone() for name, entry in net.state_dict().items()}
    found = window_description(net, x, y, 2)
    features = x.flatten(1).double().numpy() / np.sqrt(1 + 1e-5)
    np.testing.assert_allclose(found, description_of(features @ directions(4, 2), y.numpy(), 2), atol=1e-6)
    assert net.training
    assert all(torch.equal(entry, before[name]) for name, entry in net.state_dict().items())
    assert not net.head._forward_pre_hooks


@pytest.mark.parametrize("classes", [2, 5])
def test_without_a_linear_layer_by_its_logits(classes):
    net = nn.Sequential(nn.Conv1d(3, classes, 4), nn.Flatten())
    assert len(
        window_description(net, torch.randn(9, 3, 4), torch.zeros(9, dtype=torch.int64), classes)
    ) == length_of(classes)
