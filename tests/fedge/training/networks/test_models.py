"""Networks: same numbers as plain `nn.Conv1d` networks, same bits from the same generator."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import MODELS
from fedge.config.registers.traits import WINDOWS
from fedge.training.networks.layout import relu_max_pool2
from fedge.training.networks.models import build_model, head_names, parameter_names, variance_names

C, T, CLASSES = 6, 32, 5


class PlainCnn(nn.Module):
    """`cnn` as one would write it."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(C, 64, 5, padding="same")
        self.norm1 = nn.BatchNorm1d(64)
        self.conv2 = nn.Conv1d(64, 64, 5, padding="same")
        self.norm2 = nn.BatchNorm1d(64)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm1(self.conv1(x)))
        x = torch.relu(self.norm2(self.conv2(x)))
        return self.head(x.mean(dim=2))


class PlainCnnPool(nn.Module):
    """`cnn-pool` as one would write it."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(C, 64, 5, padding="same")
        self.conv2 = nn.Conv1d(64, 64, 5, padding="same")
        self.hidden = nn.Linear(64 * (samples // 2 // 2), 128)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool1d(torch.relu(self.conv1(x)), 2)
        x = F.max_pool1d(torch.relu(self.conv2(x)), 2)
        return self.head(torch.relu(self.hidden(x.flatten(1))))


PLAIN = {"cnn": PlainCnn, "cnn-pool": PlainCnnPool}
MOOT_BIASES = {"cnn": ("conv1.bias", "conv2.bias"), "cnn-pool": ()}
"""BatchNorm takes these biases out again: in training their gradient is zero up to rounding."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_near(ours: Tensor, plain: Tensor, what: str) -> None:
    scale = plain.abs().max().item()
    assert (ours - plain).abs().max().item() <= 1e-5 * scale, what


@pytest.mark.parametrize("samples", [T, T + 1, T + 3])
@pytest.mark.parametrize("name", PLAIN)
def test_values_gradients_and_buffers_equal_the_plain_network(name: str, samples: int) -> None:
    generator = seeded()
    ours, plain = build_model(name, (C, samples), CLASSES, generator), PLAIN[name](samples)
    plain.load_state_dict(ours.state_dict())
    for training in (True, True, False):
        ours.train(training)
        plain.train(training)
        x = torch.randn(16, C, samples, generator=generator)
        y = torch.randint(0, CLASSES, (16,), generator=generator)
        outputs = ours(x), plain(x)
        assert_near(*outputs, "logits")
        gradients = [
            torch.autograd.grad(F.cross_entropy(out, y), list(m.parameters()))
            for out, m in zip(outputs, (ours, plain), strict=True)
        ]
        got, expected = (dict(zip(parameter_names(ours), g, strict=True)) for g in gradients)
        for what in expected:
            assert got[what].shape == expected[what].shape
            if training and what in MOOT_BIASES[name]:
                of_the_weight = expected[what.replace("bias", "weight")].abs().max()
                assert got[what].abs().max() < 1e-5 * of_the_weight, what
            else:
                assert_near(got[what], expected[what], what)
    for (what, a), b in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        assert_near(a.double(), b.double(), what)


@pytest.mark.parametrize("name", PLAIN)
def test_state_dict_is_the_plain_network_s(name: str) -> None:
    ours, plain = build_model(name, (C, T), CLASSES, seeded()), PLAIN[name](T)
    assert list(ours.state_dict()) == list(plain.state_dict())
    ours.load_state_dict(plain.state_dict())


@pytest.mark.parametrize("samples", [8, 9])
def test_pooling_breaks_ties_as_pytorch_does(samples: int) -> None:
    """Small whole numbers tie often, above and below zero."""
    x = torch.randint(-2, 3, (4, 3, samples), generator=seeded()).float()
    plain = x.clone().requires_grad_()
    ours = x.unsqueeze(2).contiguous(memory_format=torch.channels_last).requires_grad_()
    upstream = torch.randn(4, 3, samples // 2, generator=seeded(1))
    expected = F.max_pool1d(torch.relu(plain), 2)
    got = relu_max_pool2(ours)
    assert torch.equal(got.squeeze(2), expected)
    (g_plain,) = torch.autograd.grad(expected, plain, upstream)
    (g_ours,) = torch.autograd.grad(got, ours, upstream.unsqueeze(2))
    assert torch.equal(g_ours.squeeze(2), g_plain)


@pytest.mark.parametrize("name", PLAIN)
def test_initial_weights_are_pytorch_s(name: str) -> None:
    """Equal seeds give the very numbers that PyTorch draws for the plain network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        plain = PLAIN[name](T)
    ours = build_model(name, (C, T), CLASSES, seeded(7))
    for what, tensor in plain.state_dict().items():
        assert torch.equal(ours.state_dict()[what], tensor), what


@pytest.mark.parametrize("name", MODELS.names_with(WINDOWS))
def test_initialisation_uses_the_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    first = build_model(name, (C, T), CLASSES, seeded(3)).state_dict()
    torch.rand(1)  # a global draw in between changes nothing
    torch.set_rng_state(before)
    second = build_model(name, (C, T), CLASSES, seeded(3)).state_dict()
    other = build_model(name, (C, T), CLASSES, seeded(4)).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert any(not torch.equal(first[k], other[k]) for k in first)


@pytest.mark.parametrize("name", MODELS.names_with(WINDOWS))
def test_names_and_shapes(name: str) -> None:
    model = build_model(name, (C, T), CLASSES, seeded())
    assert model(torch.zeros(3, C, T)).shape == (3, CLASSES)
    weight, bias = head_names(model)
    assert (weight, bias) == ("head.weight", "head.bias")
    assert model.state_dict()[weight].shape[0] == CLASSES
    parameters = parameter_names(model)
    assert sorted(parameters + [name for name, _ in model.named_buffers()]) == sorted(model.state_dict())
    assert not any("running" in p or "num_batches" in p for p in parameters)


def test_sizes() -> None:
    count = {
        name: sum(p.numel() for p in build_model(name, (6, 128), 6, seeded()).parameters())
        for name in MODELS.names_with(WINDOWS)
    }
    assert count["cnn"] == 23_174
    assert count["cnn-pool"] == 285_574
    assert count["mlp-tiny"] < 500


def test_unknown_name_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean cnn-pool") as error:
        build_model("cnnpool", (C, T), CLASSES, seeded())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("sizes", [(0, T, 5), (C, 0, 5), (C, T, 0), (C, 3, 5)])
def test_sizes_too_small_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"(must be|inputs of) at least"):
        build_model("cnn-pool", sizes[:2], sizes[2], seeded())


def test_the_head_is_the_layer_of_the_last_matrix() -> None:
    with pytest.raises(ValueError, match="head"):
        head_names(nn.Sequential(nn.BatchNorm1d(1)))
    assert head_names(nn.Sequential(nn.Linear(1, 1, bias=False))) == ("0.weight",)


class Shared(nn.Module):
    """A BatchNorm with two names that is called twice, one that is called once, one in training alone."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv1d(2, 2, 3, padding=1), nn.BatchNorm1d(2), nn.BatchNorm1d(2)
        self.body = nn.Sequential(self.conv, self.norm)
        self.aside, self.fixed = nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False)

    def forward(self, x):
        x = self.fixed(self.body(self.body(x)))
        return self.last(self.aside(x) if self.training else x).mean(2)


@pytest.mark.parametrize("training", [True, False])
def test_variances_are_named_as_often_as_their_layers_are_called(training):
    """As often as the counter grows in a step, and nothing changes meanwhile."""
    model = Shared().train(training)
    before = {name: entry.clone() for name, entry in model.state_dict().items()}
    assert variance_names(model, (2, 8)) == [
        "norm.running_var", "norm.running_var", "last.running_var", "aside.running_var",
    ]  # fmt: skip
    assert model.training == training
    assert all(torch.equal(entry, before[name]) for name, entry in model.state_dict().items())
    assert not model.norm._forward_pre_hooks
    model.train()(torch.randn(3, 2, 8))
    assert [int(layer.num_batches_tracked) for layer in (model.norm, model.last, model.aside)] == [2, 1, 1]


def test_networks_without_batch_norm_have_no_variances():
    model = build_model("linear", (2, 8), 3, torch.Generator())
    assert variance_names(model, (2, 8)) == []
