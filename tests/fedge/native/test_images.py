"""Images by the native step: products by hand, networks against PyTorch, errors against doubles."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from any_networks import KERNELS, flat_weights, in_double, kernels, needs_native, use_kernel
from image_networks import WIDE, image_case
from torch import nn

from fedge.native.library import Session
from fedge.native.plan import Plan, flat_array, make_plan, plan_of
from fedge.training.evaluation import evaluate_parts
from fedge.training.kernels import kernel_of
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import get_state
from fedge.training.settings import LocalTraining

pytestmark = needs_native

PLAIN = LocalTraining(lr=0.05, epochs=2, batch_size=16, kernel="native")
FULL = replace(PLAIN, momentum=0.9, weight_decay=1e-2, clip_norm=0.5, label_smoothing=0.1, prox_mu=0.1)


def images(windows, shape, classes, seed=0):
    """Images and labels: the class lights one line."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (windows,), generator=generator)
    x = torch.randn(windows, *shape, generator=generator)
    x[torch.arange(windows), 0, y % shape[1]] += 1.0
    return x, y


def trained(model, settings, x, y, state, correction=None, draws=None):
    """Train for real; returns the result."""
    return train(model, x, y, settings, torch.Generator().manual_seed(9), correction, state, draws)


def both(model, settings, x, y, correction=None, draws=False):
    """Results of the native step and of PyTorch for one model."""
    state, found = get_state(model), []
    for kernel in ("native", "torch"):
        stream = torch.Generator().manual_seed(4) if draws else None
        used = replace(settings, kernel=kernel)
        found.append(trained(model, used, x, y, state, correction, stream))
    return found


def assert_close(native, eager, start):
    """They agree but for rounding, and a number that falls on the other side of a ReLU's edge for it."""
    assert native.steps == eager.steps
    assert native.loss == pytest.approx(eager.loss, rel=1e-5)
    for name, expected in eager.state.items():
        moved = np.linalg.norm(expected.astype(float) - start[name])
        rounding = 1e-6 * expected.size**0.5 * (1 + np.abs(expected).max())
        assert np.linalg.norm(native.state[name] - expected) <= 5e-3 * moved + rounding, name


class Pixels(nn.Module):
    """Logits: the sum of what a layer makes of an image, and zero."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(1, 2, bias=False)
        self.head.weight.data = torch.tensor([[1.0], [0.0]])

    def forward(self, x):
        return self.head(self.layer(x).sum(dim=(2, 3)))


def logit(model, kernel, image):
    """The first logit, from the loss log(1 + e^−z) of its class."""
    plan = make_plan(model, tuple(image.shape), kernel)
    with Session(plan.evaluation, 1, kernel) as session:
        numbers = dict(model.named_parameters())
        session.begin(flat_array(plan.weights, numbers), np.zeros(0, np.float32), None, np.zeros(6))
        losses, _ = session.evaluate(image[None].astype(np.float32), np.zeros(1, np.int64))
    return -np.log(np.expm1(losses[0]))


IMAGE = np.array([[[1, 2, 3], [4, 5, 6]]]) / 10
HAND = {
    # one position: 1·0.1 + 2·0.2 + 3·0.4 + 4·0.5 = 3.7; the next: 1·0.2 + 2·0.3 + 3·0.5 + 4·0.6 = 4.7
    "two positions": (nn.Conv2d(1, 1, 2, bias=False), [1, 2, 3, 4], 3.7 + 4.7),
    # a stride of two leaves the first position alone
    "a stride": (nn.Conv2d(1, 1, 2, 2, bias=False), [1, 2, 3, 4], 3.7),
    # with zeros above and below, the taps of line 0 see lines 0 and 1, those of line 1 too
    "padding over lines": (nn.Conv2d(1, 1, (2, 1), 1, (1, 0), bias=False), [1, 10], 11 * 2.1),
    # line 0: 0.2, 0.3; line 1: 0.5, 0.6; the greatest of 2 × 2 are .5 and .6
    "a maximum": (nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.MaxPool2d(2, 1)), [1], 0.5 + 0.6),
    # (.1 + .2 + .4 + .5) / 4 and (.2 + .3 + .5 + .6) / 4
    "a mean": (nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AvgPool2d(2, 1)), [1], 0.3 + 0.4),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("what", HAND)
def test_pixels_by_hand(monkeypatch, kernel, what):
    use_kernel(monkeypatch, kernel)
    layer, weights, expected = HAND[what]
    first = next(layer.parameters())
    first.data = torch.tensor(weights, dtype=torch.float32).view(first.shape)
    assert logit(Pixels(layer), kernel, IMAGE) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seeds", [range(12), range(12, 24)], ids=["first", "second"])
def test_random_networks_on_images_are_known(monkeypatch, kernel, seeds):
    """A plan is only made where loss, gradients and statistics agree with PyTorch, each entry for itself."""
    use_kernel(monkeypatch, kernel)
    for seed in seeds:
        case = image_case(seed)
        plan = make_plan(case.model, case.shape, kernel)
        assert plan.classes == case.classes, seed


@pytest.mark.parametrize("seed", range(16))
def test_networks_on_images_train_as_by_pytorch(seed):
    """With dropout, whose masks are PyTorch's own, from the client's stream; last batches are short."""
    case = image_case(100 + seed)
    x, y = images(case.windows, case.shape, case.classes, seed)
    settings = replace(PLAIN, epochs=1, lr=0.01, batch_size=case.batch)
    start = get_state(case.model)
    assert_close(*both(case.model, settings, x, y, draws=True), start)


@pytest.mark.parametrize("settings", [PLAIN, FULL], ids=["plain", "all terms"])
def test_fedges_own_network_with_every_term(settings):
    model = build_model("cnn2d", (3, 9, 11), 4, torch.Generator().manual_seed(1))
    rng = np.random.default_rng(0)
    correction = {name: 0.1 * rng.normal(size=p.shape) for name, p in model.named_parameters()}
    x, y = images(45, (3, 9, 11), 4)
    start = get_state(model)
    assert_close(*both(model, settings, x, y, correction), start)


def wide():
    """A network of many weights, fetched once for several windows, between layers that go one by one."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, WIDE, 3, padding=1), nn.ReLU(), nn.Conv2d(WIDE, WIDE, 3, padding=1),
        nn.BatchNorm2d(WIDE), nn.ReLU(), nn.Conv2d(WIDE, 5, 3, 2), nn.Flatten(), nn.Linear(5 * 4, 4),
    )  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
def test_many_weights(monkeypatch, kernel):
    """33 windows of 25 positions are more than go together, and the last batch is a short one."""
    use_kernel(monkeypatch, kernel)
    model, (x, y) = wide(), images(40, (2, 5, 5), 4)
    start = get_state(model)
    assert_close(*both(model, replace(PLAIN, epochs=1, batch_size=33), x, y), start)


@pytest.mark.parametrize("name", ["cnn2d", "wide"])
def test_evaluation_of_images(name):
    """The same loss but for rounding, the same predictions; parts are parts of one whole, to the last bit."""
    model = wide() if name == "wide" else build_model(name, (2, 5, 5), 4, torch.Generator().manual_seed(1))
    x, y = images(150, (2, 5, 5), 4, seed=2)
    native = evaluate_parts(model, x, y, [90, 60], kernel="native")
    eager = evaluate_parts(model, x, y, [90, 60])
    for got, expected in zip(native, eager, strict=True):
        assert got.loss == pytest.approx(expected.loss, rel=1e-5)
        assert np.array_equal(got.confusion, expected.confusion)
    one = evaluate_parts(model, x[90:], y[90:], [60], kernel="native")[0]
    assert one.loss == pytest.approx(native[1].loss, rel=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_clients_at_once_have_the_bits_of_one_alone(monkeypatch, kernel):
    use_kernel(monkeypatch, kernel)
    x, y = images(40, (2, 5, 5), 4)
    models = [wide() for _ in range(3)]
    alone, together = trained(models[0], FULL, x, y, get_state(models[0])).state, {}

    def client(number):
        together[number] = trained(models[number], FULL, x, y, get_state(models[number])).state

    threads = [threading.Thread(target=client, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for state in together.values():
        assert all(np.array_equal(state[name], alone[name]) for name in alone)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_errors_are_as_small_as_pytorchs(monkeypatch, kernel):
    """Of twelve random networks after some steps, against double precision."""
    use_kernel(monkeypatch, kernel)
    ratios = []
    for seed in range(200, 212):
        case = image_case(seed)
        for layer in case.model.modules():
            if isinstance(layer, nn.Dropout | nn.Dropout2d):
                layer.p = 0.0
        x, y = images(32, case.shape, case.classes, seed)
        settings = replace(PLAIN, lr=2**-6, batch_size=8)
        truth = in_double(case.model, x, y, settings, torch.Generator().manual_seed(9))
        off = [
            float(np.linalg.norm(flat_weights(case.model, result.state) - truth))
            for result in both(case.model, settings, x, y)
        ]
        ratios.append((off[0] + 1e-12) / (off[1] + 1e-12))
    assert np.exp(np.log(ratios).mean()) < 1.2
    assert max(ratios) < 8


class Same(nn.Module):
    """A layer by its function, for what no layer has."""

    def __init__(self, forward):
        super().__init__()
        self.forward = forward


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.Conv2d(2, 4, 3, padding=2, dilation=2), "dilation"),
        (nn.Conv2d(2, 4, 3, padding=1, groups=2), "groups"),
        (nn.Conv2d(2, 4, 1, padding=1), "padding"),
        (nn.AvgPool2d(2, divisor_override=3), "a divisor of its own"),
        (nn.MaxPool2d(2, ceil_mode=True), "a ceiling"),
        (Same(lambda x: x.transpose(2, 3)), "its input has axes N, C, W, H"),
        (Same(lambda x: x.reshape(len(x), 2, 4, 12)), "shape"),
    ],
)
def test_what_is_not_known_of_images_is_told(layer, why):
    features = layer(torch.zeros(1, 2, 6, 8)).numel()
    told = plan_of(nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(features, 2)), (2, 6, 8))
    assert isinstance(told, str)
    assert why in told


def test_factors_of_images_are_not_rounded():
    """With train.precision bf16 PyTorch trains, and says why."""
    model = build_model("cnn2d", (1, 8, 8), 4, torch.Generator())
    kernel = kernel_of(model, (1, 8, 8), "native", "bf16")
    assert kernel.name == "torch"
    assert kernel.reason == "the native step does not round factors of images to bf16"
    assert kernel_of(model, (1, 8, 8), "native").name.startswith("native ")


WRONG = {"lines": 3, "line_size": 99, "line_stride": 0, "line_padding": 3, "size": 0, "padding": 5}


@pytest.mark.parametrize("field", WRONG)
def test_an_image_that_does_not_fit_is_refused(field):
    """Each of an operation's numbers, changed by itself, before anything is computed with it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Flatten(), nn.Linear(3 * 20, 2))
    plan = plan_of(model, (1, 4, 5))
    assert isinstance(plan, Plan), plan
    words = plan.evaluation.copy()
    (begin,) = (i for i in range(len(words) - 18) if words[i] == 11 and words[i + 14] == 4)
    names = {"size": 6, "stride": 7, "padding": 8, "lines": 14, "line_size": 15, "line_stride": 16,
             "line_padding": 17}  # fmt: skip
    with Session(words, 2, kernels()[-1]):
        pass
    words[begin + names[field]] = WRONG[field]
    with pytest.raises(ValueError, match=r"image|taps"):
        Session(words, 2, kernels()[-1])
