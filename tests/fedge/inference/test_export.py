"""ONNX and TorchScript files of networks of every kind, read back by their own libraries."""

import resource
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedge.config.registers.option import ConfigError
from fedge.inference import export
from fedge.inference.card import NUMBERS, Card
from fedge.inference.export import write_onnx, write_torchscript
from fedge.inference.network import Classifier, probabilities
from fedge.training.networks.models import build_model

CARD = Card(
    "1", "my:Net", {}, {}, (2, 16), "float32", ("u", "v"), ("a", "b"), mean=(0.5, 1.0), std=(1.0, 2.0)
)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn = kind(2, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.rnn(x.transpose(1, 2))[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(2, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.layer(self.embed(x.transpose(1, 2))).mean(dim=1))


class Branching(nn.Module):
    """Does something else with one window at a time, which no trace sees."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        logits = self.head(x.flatten(1))
        return logits * 9 if len(x) == 1 else logits


def classifier_of(network, card=CARD):
    if isinstance(network, str):
        network = build_model(network, card.input_shape, 2, torch.Generator().manual_seed(1))
    return Classifier(network, card.input_shape, card.mean, card.std, card.dtype)


NETWORKS = {
    "cnn": lambda: "cnn", "cnn-pool": lambda: "cnn-pool", "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU), "attention": Attention,
}  # fmt: skip
ALIKE = ("cnn-pool", "gru")  # another of the same kind is tried, too: these in make extended


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.extended] if name in ALIKE else []) for name in NETWORKS]
)
def test_files_give_the_models_probabilities(name, tmp_path):
    classifier = classifier_of(NETWORKS[name]())
    x = (3 * np.random.default_rng(1).normal(size=(7, 2, 16)) + 1).astype(np.float32)
    expected = probabilities(classifier, x)
    assert write_torchscript(classifier, CARD, tmp_path / "m.pt") <= 1e-5
    found = torch.jit.load(tmp_path / "m.pt")(torch.from_numpy(x)).numpy()
    assert np.abs(found - expected).max() <= 1e-5
    runtime = pytest.importorskip("onnxruntime", reason="fedge[onnx] is not installed")
    assert write_onnx(classifier, CARD, tmp_path / "m.onnx") <= 1e-5
    session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert np.abs(session.run(None, {"windows": x})[0] - expected).max() <= 1e-5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.pt"]


class Stretched(nn.Module):
    """Numbers in the hundreds, as prices: rounding in float32 alone puts them off by more than 0.00001."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(32, 64), nn.Linear(64, 2)

    def forward(self, x):
        return 1000 * self.head(self.first(x.flatten(1)).relu())


@pytest.mark.slow
def test_numbers_are_compared_in_proportion_to_their_size(tmp_path):
    torch.manual_seed(0)
    card = replace(CARD, says=NUMBERS)
    classifier = Classifier(Stretched(), card.input_shape, card.mean, card.std, card.dtype, card.says)
    pytest.importorskip("onnxruntime", reason="fedge[onnx] is not installed")
    assert write_onnx(classifier, card, tmp_path / "m.onnx") > 1e-5


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_answer_that_is_not_a_number_is_never_within_the_tolerance(place):
    """Whichever example gives it: a comparison with NaN is false, so `max` may pass over one."""
    examples = export._examples(CARD)
    classifier = classifier_of("cnn")

    def exported(x):
        answers = classifier(torch.from_numpy(x)).numpy()
        return np.full_like(answers, np.nan) if x is examples[place] else answers

    difference, size = export._compare(classifier, exported, examples)
    assert np.isnan(difference)
    assert size == 1


@pytest.mark.slow
def test_images_go_in_as_bytes(tmp_path):
    card = replace(CARD, input_shape=(1, 8, 8), dtype="uint8", channels=("grey",), mean=(0.4,), std=(0.2,))
    classifier = classifier_of("cnn2d", card)
    assert write_torchscript(classifier, card, tmp_path / "m.pt") <= 1e-5
    x = np.random.default_rng(1).integers(0, 256, (3, 1, 8, 8), dtype=np.uint8)
    found = torch.jit.load(tmp_path / "m.pt")(torch.from_numpy(x)).numpy()
    assert np.abs(found - probabilities(classifier, x)).max() <= 1e-5
    pytest.importorskip("onnxruntime", reason="fedge[onnx] is not installed")
    assert write_onnx(classifier, card, tmp_path / "m.onnx") <= 1e-5


@pytest.mark.parametrize("most", [0, 1500])
def test_a_disk_that_fills_up_is_one_line(tmp_path, most):
    """PyTorch's own writer of TorchScript ends the process there, by an exception in a destructor."""
    network = classifier_of(NETWORKS[sorted(NETWORKS)[0]]())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"m\.pt must be writable, but: File too large; choose another"):
            write_torchscript(network, CARD, tmp_path / "m.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_computes_something_else_is_none(tmp_path):
    with pytest.raises(ConfigError, match=r"must give the model's probabilities to 1e-05, but is .* off"):
        write_torchscript(classifier_of(Branching()), CARD, tmp_path / "m.pt")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "m.pt").mkdir()  # is in the way, and stays
    for path, words in {"no/m.pt": "must be writable", "m.pt": "must be writable|cannot be written"}.items():
        with pytest.raises(ConfigError, match=words) as caught:
            write_torchscript(classifier_of("linear"), CARD, tmp_path / path)
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(export, "_REQUIRED", ("onnx", "no_such_package"))
    with pytest.raises(ConfigError, match=r"--onnx needs .*no_such_package.* pip install 'fedge\[onnx\]'"):
        write_onnx(classifier_of("linear"), CARD, tmp_path / "m.onnx")
