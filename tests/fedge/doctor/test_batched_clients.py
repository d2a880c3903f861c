"""Several clients' steps in one: each client's weights are those of its own steps."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedge.doctor.batched_clients import BatchedStep
from fedge.doctor.gpu_speeds import Subject, batched_speeds
from fedge.training.networks.models import build_model
from fedge.training.settings import LocalTraining
from fedge.training.sgd import Sgd

SETTINGS = LocalTraining(lr=0.1, momentum=0.9, weight_decay=0.01, clip_norm=0.5, label_smoothing=0.1)
CLIENTS, BATCH = 3, 8


def networks(name):
    """Networks of clients, with weights of their own."""
    return [build_model(name, (6, 32), 4, torch.Generator().manual_seed(k)) for k in range(CLIENTS)]


@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
@pytest.mark.parametrize("name", ["linear", "mlp-tiny"])
def test_each_clients_weights_and_statistics_are_those_of_its_own_steps(name, clip_norm):
    """mlp-tiny has BatchNorm."""
    settings = replace(SETTINGS, clip_norm=clip_norm)
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(CLIENTS, BATCH, 6, 32, generator=generator)
    y = torch.randint(0, 4, (CLIENTS, BATCH), generator=generator)
    batched, alone = BatchedStep(networks(name), settings), networks(name)
    steps = [Sgd(model, settings, None) for model in alone]
    for _ in range(3):
        losses = batched(x, y)
        for k, sgd in enumerate(steps):
            assert float(losses[k]) == pytest.approx(float(sgd.step(x[k], y[k])), rel=1e-5)
    for k, model in enumerate(alone):
        ours = {**batched.weights_of(k), **{n: b[k] for n, b in batched._buffers.items()}}
        for entry, expected in model.state_dict().items():
            torch.testing.assert_close(ours[entry], expected, rtol=1e-4, atol=1e-6)


def test_a_network_that_cannot_be_batched_is_an_error_of_pytorch():
    class Choosing(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(12, 2)

        def forward(self, x):
            return self.head(x.flatten(1)) if x.sum().item() > 0 else self.head(-x.flatten(1))

    subject = Subject(Choosing, torch.ones(8, 3, 4), torch.zeros(8, dtype=torch.int64), SETTINGS)
    with pytest.raises(RuntimeError, match="vmap"):
        batched_speeds(subject, "cpu", clients=2)
