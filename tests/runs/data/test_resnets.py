"""Residual networks on pictures, as torchvision makes them: called by `num_classes`, with BatchNorm2d."""

import io

import numpy as np
import pytest
from torch import nn

import fedge

CLASSES = ("plane", "car", "bird")


@pytest.fixture(scope="module")
def pictures():
    """60 pictures of CIFAR-10's size of two users, which differ in colour by class."""
    rng = np.random.default_rng(0)
    labels = rng.permuted(np.arange(60) % 3)
    images = rng.integers(0, 120, (60, 32, 32, 3))
    images[np.arange(60), :, :, labels] += 100
    return fedge.from_images(images.astype(np.uint8), labels, classes=CLASSES, users=2, per_user=30)


class Block(nn.Module):
    """Two convolutions and what they leave as it is."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
        )

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + self.downsample(x))


class ResNet(nn.Module):
    """Torchvision's, with two blocks of few channels."""

    def __init__(self, num_classes=1000, zero_init_residual=False):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layers = nn.Sequential(Block(4, 4, 1), Block(4, 8, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Block) and zero_init_residual:
                nn.init.constant_(module.bn2.weight, 0)

    def forward(self, x):
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        return self.fc(self.avgpool(self.layers(x)).flatten(1))


def small_resnet(*, weights=None, progress=True, **kwargs):
    """Torchvision's signature: nothing but keywords, `num_classes` among those that are passed on."""
    assert weights is None
    return ResNet(**kwargs)


def two_rounds(folder, model, pictures, workers=1, **changes):
    """A run of two rounds on two clients of one leaf each, SCAFFOLD and all."""
    config = {
        "num-server-rounds": 2, "train.local-epochs": 1, "train.batch-size": 9, "hierarchy.num-servers": 2,
        "report": False, "runs-dir": str(folder), "data.guard-windows": 0, **changes,
    }  # fmt: skip
    return fedge.simulate(config, model=model, data=pictures, workers=workers, terminal=io.StringIO())


def test_one_of_torchvisions_form_trains_with_the_same_bits_on_any_number_of_workers(tmp_path, pictures):
    """Its arguments go through; weights are drawn by its own code; statistics move; it can be used."""
    arguments = {"train.model-args": '{"zero_init_residual": true}'}
    runs = [two_rounds(tmp_path, small_resnet, pictures, n, **arguments) for n in (1, 2)]
    assert [(run.status, run.reason) for run in runs] == [("completed", "")] * 2
    first, second = ((run.folder / "checkpoints" / "final.safetensors").read_bytes() for run in runs)
    assert first == second
    model = runs[0].models()[0]
    assert model["fc.weight"].shape == (3, 8)
    assert model["bn1.running_var"].min() > 0
    assert (model["bn1.running_mean"] != 0).any()
    assert model["bn1.num_batches_tracked"].dtype == np.int64
    assert runs[0].predict(pictures.x[:5]).probabilities.shape == (5, 3)


def test_torchvisions_resnet18_trains_unmodified(tmp_path, shared_data):
    """On a part of CIFAR-10."""
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed for this PyTorch")
    with np.load(shared_data / "cifar10" / "cifar10-12000.npz") as real:
        x, y, classes = real["x"][:200], real["y"][:200], tuple(real["classes"])
    run = two_rounds(tmp_path, models.resnet18, fedge.from_images(x, y, classes=classes, users=2))
    assert (run.status, run.reason) == ("completed", "")
    assert run.models()[0]["fc.weight"].shape == (10, 512)
