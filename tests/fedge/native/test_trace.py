"""Operations of a network are found however it is written; unknown ones are told with their layer."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedge.native.operations import HANDLERS
from fedge.native.trace import UnknownError, answer_with, trace_operations
from fedge.training.networks.models import build_model


class Written(nn.Module):
    """A network whose forward is given."""

    def __init__(self, forward):
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 5, stride=2, padding=2)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 4)
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


def kinds(model, training=True, shape=(3, 16)):
    """The kinds of a model's operations."""
    return [node.kind for node in trace_operations(model, shape, training, HANDLERS).nodes]


def plain(net, x):
    return net.head(F.relu(net.norm(net.conv(x))).mean(dim=-1))


def other_words(net, x):
    x = net.norm(F.conv1d(x, net.conv.weight, net.conv.bias, 2, 2)).relu_()
    return F.linear(x.sum(2) / x.shape[2], net.head.weight, net.head.bias)


def test_the_same_network_in_other_words_is_the_same():
    found = [trace_operations(Written(words), (3, 16), True, HANDLERS) for words in (plain, other_words)]
    assert [node.kind for node in found[0].nodes] == ["conv", "norm", "relu", "mean_all", "linear"]
    assert found[0].nodes[3].numbers == pytest.approx(found[1].nodes[3].numbers)
    assert [n.weight for n in found[0].nodes] == [n.weight for n in found[1].nodes]
    assert found[0].values[found[0].nodes[0].output] == (8, 8)
    assert found[0].counters == ("norm.num_batches_tracked",)


def test_in_evaluation_nothing_is_dropped_and_statistics_are_fixed():
    def words(net, x):
        return net.head(net.drop(net.norm(net.conv(x))).mean(2))

    assert kinds(Written(words)) == ["conv", "norm", "drop", "mean_all", "linear"]
    assert kinds(Written(words), training=False) == ["conv", "fixed_norm", "mean_all", "linear"]


@pytest.mark.parametrize("name", ["cnn", "cnn-pool", "mlp-tiny", "linear"])
def test_fedges_own_networks_are_known(name):
    model = build_model(name, (3, 16), 4, torch.Generator())
    assert kinds(model)[-1] == "linear"


def test_nothing_of_the_model_changes():
    model = Written(plain).eval()
    before = {name: entry.clone() for name, entry in model.state_dict().items()}
    state = torch.random.get_rng_state()
    trace_operations(model, (3, 16), True, HANDLERS)
    assert not model.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(entry, before[name]) for name, entry in model.state_dict().items())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())


UNKNOWN = {
    "a layer": (lambda net, x: net.head(net.lstm(net.conv(x))[0]), r"layer lstm \(LSTM: "),
    "an operation": (
        lambda net, x: net.head(torch.exp(net.conv(x)).mean(2)), r"the network itself \(Written: exp",
    ),
    "a number looked at": (lambda net, x: plain(net, x) if x.sum() > 0 else net.head(x.mean(2)), "Written: "),
    "the size of the batch": (lambda net, x: plain(net, x).div(len(x)), "a quotient"),
    "a computed weight": (
        lambda net, x: F.linear(net.conv(x).mean(2), net.head.weight * 2), r"it uses|Written: mul",
    ),
    "a foreign tensor": (lambda net, x: net.conv(x).mean(2) + torch.ones(2, 8), "Written: ones"),
    "a series as logits": (lambda net, x: net.conv(x), "it returns a tensor of shape"),
    "dilation": (lambda net, x: F.conv1d(x, net.conv.weight, dilation=2).mean(2), "dilation"),
    "groups": (lambda net, x: F.conv1d(x, net.conv.weight[:3, :1], groups=3).mean(2), "getitem|groups"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_is_not_known_is_told(what):
    words, why = UNKNOWN[what]
    with pytest.raises(UnknownError, match=why):
        trace_operations(Written(words), (3, 16), True, HANDLERS)


def test_what_depends_on_the_number_of_windows_is_not_known():
    def words(net, x):
        return plain(net, x if x.shape[0] == 2 else F.relu(x))

    with pytest.raises(UnknownError, match="depends on the number of windows"):
        trace_operations(Written(words), (3, 16), True, HANDLERS)


def test_images_are_known_and_single_pixels_are_a_series():
    model = build_model("cnn2d", (1, 8, 8), 4, torch.Generator())
    assert kinds(model, shape=(1, 8, 8))[:2] == ["image_conv", "relu"]
    pixels = nn.Sequential(nn.Conv2d(1, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 64, 4))
    assert kinds(pixels, shape=(1, 8, 8)) == ["conv", "relu", "linear"]


def test_inputs_of_other_ranks_are_not_known():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    with pytest.raises(UnknownError, match=r"inputs of shape \(1, 2, 2, 4\)"):
        trace_operations(model, (1, 2, 2, 4), True, HANDLERS)


def tensors_of(model):
    """Every place of a tensor in a network, with the tensor and its numbers."""
    tables = [(layer, table) for layer in model.modules() for table in (layer._parameters, layer._buffers)]
    return [
        (id(layer), key, id(entry), None if entry is None else entry.detach().clone())
        for layer, table in tables
        for key, entry in table.items()
    ]


class Twice(nn.Module):
    """Layers with several names, and weights with several layers."""

    def __init__(self, tied):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(3, 3, 3, padding=1), nn.BatchNorm1d(3), nn.Linear(3, 4)
        self.layers = nn.Sequential(self.conv, self.norm, nn.ReLU())
        self.again = nn.Conv1d(3, 3, 3, padding=1)
        if tied:
            self.again.weight = self.conv.weight
            self.third = self.again

    def forward(self, x):
        return self.head(self.layers(self.again(x)).mean(2))


@pytest.mark.parametrize("tied", [False, True])
def test_a_network_whose_layers_have_two_names_stays_as_it_is(tied):
    """PyTorch's `functional_call` puts the tensors of the call into them."""
    model = Twice(tied)
    before = tensors_of(model)
    for training in (True, False):
        assert kinds(model, training)[:2] == ["conv", "conv"]
    for (*place, numbers), (*same, wanted) in zip(tensors_of(model), before, strict=True):
        assert place == same
        torch.testing.assert_close(numbers, wanted, rtol=0, atol=0)


def test_answers_with_other_entries_are_those_of_a_network_that_has_them():
    """Under all names of a weight, with statistics changed in what was given."""
    model, other = Twice(True), Twice(True)
    torch.manual_seed(1)
    with torch.no_grad():
        for entry in other.parameters():
            entry.copy_(torch.randn(entry.shape))
    given = {n: e.detach().clone() for n, e in [*other.named_parameters(), *other.named_buffers()]}
    x = torch.randn(5, 3, 16)
    torch.testing.assert_close(answer_with(model, given, x), other(x), rtol=0, atol=0)
    torch.testing.assert_close(given["norm.running_var"], other.norm.running_var, rtol=0, atol=0)
    assert int(given["norm.num_batches_tracked"]) == 1
