"""Augmentation of training inputs: by hand, on every way that trains, and what is refused."""

import numpy as np
import pytest
import torch
from any_networks import needs_native
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedge.algorithm.descent import Changes, descend
from fedge.config.registers.option import ConfigError
from fedge.config.sections.train import TrainConfig
from fedge.training.augmentation import Batches, augment_of, crop, flip, refuse_augmentation
from fedge.training.kernels import native_plan
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import get_state
from fedge.training.schedule import local_training


def pictures(count, size=5):
    return np.random.default_rng(1).normal(size=(count, 3, size, size)).astype(np.float32)


class Fixed:
    """Random numbers that are told."""

    def __init__(self, drawn):
        self.drawn = np.array(drawn)

    def integers(self, low, high, size):
        assert (self.drawn >= low).all()
        assert (self.drawn < high).all()
        assert self.drawn.shape == tuple(size)
        return self.drawn

    def random(self, count):
        assert len(self.drawn) == count
        return self.drawn


def test_crop_by_hand():
    """Down and right of 2 are no move with pad 2; 0 and 4 show two lines of zeros."""
    x = pictures(3)
    moved = crop(x, Fixed([[2, 0, 4], [2, 2, 1]]), pad=2)
    np.testing.assert_array_equal(moved[0], x[0])
    np.testing.assert_array_equal(moved[1, :, 2:], x[1, :, :-2])
    assert not moved[1, :, :2].any()
    np.testing.assert_array_equal(moved[2, :, :3, 1:], x[2, :, 2:, :-1])
    assert not moved[2, :, 3:].any()
    assert not moved[2, :, :, :1].any()


def test_flip_by_hand():
    """Below the chance an image is turned."""
    x = pictures(2)
    turned = flip(x, Fixed([0.2, 0.7]), chance=0.5)
    np.testing.assert_array_equal(turned[0], x[0, :, :, ::-1])
    np.testing.assert_array_equal(turned[1], x[1])


@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 2**30))
def test_crops_are_windows_of_the_padded_image(count, pad, seed):
    """Every crop is found somewhere in its padded image; pad 0 changes nothing."""
    x = pictures(count)
    made = crop(x, np.random.default_rng(seed), pad=pad)
    wide = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    views = np.lib.stride_tricks.sliding_window_view(wide, x.shape[2:], axis=(2, 3))
    for one, own in zip(made, views, strict=True):
        places = np.moveaxis(own, 0, 2).reshape(-1, *one.shape)
        assert any(np.array_equal(one, place) for place in places)


def settings_of(**given):
    return local_training(TrainConfig(batch_size=4, local_epochs=2, **given), 1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(75, 2))


def trained(settings, way):
    """Weights after training by Fedge's own step, or by that of methods."""
    net, x, y = network(), torch.from_numpy(pictures(10)), torch.arange(10) % 2
    order = torch.Generator().manual_seed(3)
    if way == "own":
        return train(net, x, y, settings, order).state
    descend(net, x, y, settings, order, Changes())
    return get_state(net)


def test_all_ways_that_train_have_the_same_bits():
    """Fedge's step and the step of methods draw alike, and other than without augmentation."""
    with_it = settings_of(augment="crop,flip", augment_args='{"pad": 2}')
    own, method = trained(with_it, "own"), trained(with_it, "method")
    plain = trained(settings_of(), "own")
    for name, array in own.items():
        np.testing.assert_array_equal(array, method[name])
        assert not np.allclose(array, plain[name])


@needs_native
@pytest.mark.parametrize("changes", [{"augment": "flip"}, {"task": "regression"}])
def test_what_the_native_step_lacks_is_trained_by_pytorch(changes):
    """A model that it knows: it has neither changes of inputs nor another loss than cross entropy."""
    found = {}
    for kernel in ("auto", "torch"):
        settings = settings_of(kernel=kernel, **changes)
        net = build_model("cnn2d", (3, 8, 8), 2, torch.Generator().manual_seed(0))
        assert (native_plan(net, (3, 8, 8), settings.kernel) is None) == (kernel == "torch")
        y = torch.arange(10) % 2
        labels = y if "task" not in changes else torch.stack([y, 1 - y], dim=1).float()
        x = torch.from_numpy(pictures(10, size=8))
        found[kernel] = train(net, x, labels, settings, torch.Generator().manual_seed(3)).state
    for name, array in found["torch"].items():
        np.testing.assert_array_equal(found["auto"][name], array)


def test_without_augmentation_nothing_is_drawn():
    """The stream of the order stands where it stood."""
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    batches = Batches(torch.arange(4), 2, None, generator)
    x = torch.from_numpy(pictures(4))
    assert torch.equal(batches.inputs(x, torch.tensor([2, 0])), x[[2, 0]])
    assert torch.equal(generator.get_state(), before)


def test_every_pass_draws_anew():
    """The same windows come out otherwise in the next pass."""
    generator, x = torch.Generator().manual_seed(3), torch.from_numpy(pictures(4))
    augment = augment_of(TrainConfig(augment="crop"))
    rows = torch.arange(4)
    first, second = (Batches(rows, 4, augment, generator).inputs(x, rows) for _ in "12")
    assert not torch.equal(first, second)


def shorter(x, rng):
    return x[:-1]


def half(x, rng):
    return x.astype(np.float16)


def endless(x, rng):
    return x / 0.0


def words(x, rng):
    return "words"


def fails(x, rng):
    raise KeyError("no")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"augment": f"{__name__}:shorter"}, "must return float32"),
        ({"augment": f"{__name__}:half"}, "float16"),
        ({"augment": f"{__name__}:words"}, "words"),
        ({"augment": f"{__name__}:fails"}, "KeyError"),
        ({"augment": f"{__name__}:nowhere"}, "has no nowhere"),
        ({"augment": "flop"}, "flip"),
        ({"augment": "flip", "augment_args": '{"pad": 1}'}, "'pad' is of none"),
        ({"augment": "crop", "augment_args": '{"pad": -1}'}, "pad must be a whole number of 0 to 1000"),
        ({"augment": "crop", "augment_args": '{"pad": true}'}, "pad must be a whole number of 0 to 1000"),
        ({"augment": "flip", "augment_args": '{"chance": 1.5}'}, "chance must be a number of 0 to 1"),
        ({"augment": "flip", "augment_args": '{"chance": "x"}'}, "chance must be a number of 0 to 1"),
        ({"augment": "crop", "kernel": "native"}, "set train.kernel=torch"),
        ({"augment": "crop", "processes": 2}, "set train.processes=1"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(given, said):
    with pytest.raises(ConfigError) as refused:
        refuse_augmentation(TrainConfig(**given), pictures(4))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(ConfigError, match="finite numbers"):
        refuse_augmentation(TrainConfig(augment=f"{__name__}:endless"), pictures(4))


def test_crops_are_of_images():
    """Sensor windows have no width; code of one's own may take any."""
    windows = pictures(4)[:, :, 0]
    with pytest.raises(ConfigError, match=r"must have images \(C, H, W\)"):
        refuse_augmentation(TrainConfig(augment="crop"), windows)
    refuse_augmentation(TrainConfig(augment=f"{__name__}:louder"), windows)


def louder(x, rng):
    return x * np.float32(rng.uniform(0.5, 2))
