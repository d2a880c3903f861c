"""Evaluation goes in batches whose memory can be kept, and says the same in any."""

import pytest
import torch
from torch import nn

from fedge.training.evaluation import evaluate_parts, windows_at_once
from fedge.training.networks.models import build_model
from fedge.training.networks.unsaved_state import Unsaved


def images(windows):
    torch.manual_seed(0)
    return torch.randn(windows, 1, 28, 28), torch.randint(0, 3, (windows,))


def network():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3)
    )


def test_batches_are_halved_until_a_layers_output_can_be_kept():
    """64 × 26 × 26 floats are 173,056 bytes of an image: of 512 images 84.5 MiB, of 128 21.1 MiB."""
    x, _ = images(1)
    assert windows_at_once(network(), x, 512) == 128
    assert windows_at_once(network(), x, 100) == 100
    small = build_model("cnn", (6, 128), 4, torch.Generator())
    assert windows_at_once(small, torch.zeros(1, 6, 128), 512) == 512


def test_a_layer_larger_than_all_that_is_kept_goes_window_by_window():
    model = nn.Sequential(nn.Upsample(scale_factor=110), nn.Flatten())
    assert windows_at_once(model, images(1)[0], 512) == 1


def test_the_size_of_a_batch_changes_last_bits_only():
    model, (x, y) = network(), images(150)
    whole = evaluate_parts(model, x, y, [90, 60])
    assert whole[0].samples == 90
    for got, expected in zip(evaluate_parts(model, x, y, [90, 60], batch_size=7), whole, strict=True):
        assert got.loss == pytest.approx(expected.loss, rel=1e-6)
        assert (got.confusion == expected.confusion).all()
    assert model.training


class Counting(nn.Module):
    """Answers follow from how often the network was called: by an attribute and by buffers of either kind."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("scale", torch.ones(4), persistent=False)

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        self.scale += 1
        return self.head(x * self.scale) * (1 + self.calls) + self.seen * torch.tensor([1.0, 0.0, 0.0])


def test_the_first_evaluation_of_a_network_says_the_same_as_any_other():
    """Each thread has a network of its own, so who is evaluated first depends on the number of workers."""
    model = Counting()
    unsaved, state = Unsaved(model), {name: entry.clone() for name, entry in model.state_dict().items()}
    x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))
    losses = []
    for _ in range(2):
        unsaved.restore()
        model.load_state_dict(state)
        losses.append(evaluate_parts(model, x, y, [6])[0].loss)
        assert model.calls == model.seen == 1
    assert losses[0] == losses[1]
    assert not any(layer._forward_hooks for layer in model.modules())
    model.train()(x).sum().backward()  # its buffers were not made in inference mode
