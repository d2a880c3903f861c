"""Shapes and types of inputs and targets that can be trained on."""

import pytest
import torch

from fedge.training.settings import check_data


@pytest.mark.parametrize("x", [torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3, 4, 2)])
@pytest.mark.parametrize("y", [torch.zeros(3), torch.zeros(3, dtype=torch.int64), torch.zeros(3, 2)])
def test_features_characters_and_windows_with_any_targets_are_taken(x, y):
    check_data(x, y)


@pytest.mark.parametrize(
    ("x", "y", "rule"),
    [
        (torch.zeros(3), torch.zeros(3), "x must be float32 or int64"),
        (torch.zeros(3, 4, dtype=torch.float64), torch.zeros(3), "x must be float32 or int64"),
        (torch.zeros(3, 4), torch.tensor(0.0), "y must be int64 or float32"),
        (torch.zeros(3, 4), torch.zeros(3, dtype=torch.int32), "y must be int64 or float32"),
        (torch.zeros(3, 4), torch.zeros(2), r"of shape \(3, …\)"),
        (torch.zeros(0, 4), torch.zeros(0), "there is no window"),
    ],
)
def test_other_shapes_and_types_are_refused(x, y, rule):
    with pytest.raises(ValueError, match=rule):
        check_data(x, y)
