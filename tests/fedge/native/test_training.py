"""Training by the native step against PyTorch: every term of a step, odd batches, errors, bits."""

import copy
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from any_networks import (
    KERNELS,
    flat_weights,
    in_double,
    kernels,
    learnable,
    needs_native,
    random_network,
    use_kernel,
)
from torch import nn

from fedge.native.plan import Plan
from fedge.training.evaluation import evaluate_parts
from fedge.training.kernels import native_plan
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import get_state
from fedge.training.settings import LocalTraining

pytestmark = needs_native

C, T, CLASSES, N = 6, 26, 4, 45
PLAIN = LocalTraining(lr=0.05, epochs=2, batch_size=16, kernel="native")
FULL = replace(PLAIN, momentum=0.9, weight_decay=1e-2, clip_norm=0.5, label_smoothing=0.1, prox_mu=0.1)
TERMS = {
    "plain": PLAIN,
    "momentum": replace(PLAIN, momentum=0.9),
    "weight decay": replace(PLAIN, weight_decay=0.1),
    "clipping": replace(PLAIN, clip_norm=0.1),
    "label smoothing": replace(PLAIN, label_smoothing=0.2),
    "proximal": replace(PLAIN, prox_mu=2.0),
    "all": FULL,
}


def trained(model, settings, correction=None, windows=N, draws=None, state=None, shape=(C, T)):
    """Train for real; returns the result."""
    x, y = learnable(windows, *shape, CLASSES)
    generator = torch.Generator().manual_seed(9)
    return train(model, x, y, settings, generator, correction, state or get_state(model), draws)


def both(model, settings, **given):
    """Results of the native step and of PyTorch for one model."""
    state = get_state(model)
    return [
        trained(model, replace(settings, kernel=kernel), state=state, **given)
        for kernel in ("native", "torch")
    ]


def assert_close(native, eager, start):
    """They agree but for rounding, and a number that falls on the other side of a ReLU's edge for it."""
    assert native.steps == eager.steps
    assert native.loss == pytest.approx(eager.loss, rel=1e-5)
    for name, expected in eager.state.items():
        moved = np.linalg.norm(expected.astype(float) - start[name])
        rounding = 1e-6 * expected.size**0.5 * (1 + np.abs(expected).max())
        assert np.linalg.norm(native.state[name] - expected) <= 5e-3 * moved + rounding, name


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("name", ["cnn", "cnn-pool"])
def test_every_term_of_a_step(name, term):
    model = build_model(name, (C, T), CLASSES, torch.Generator().manual_seed(1))
    start = get_state(model)
    assert_close(*both(model, TERMS[term]), start)


@pytest.mark.parametrize("name", ["cnn", "cnn-pool", "mlp-tiny", "linear"])
def test_the_correction_of_scaffold_beside_all_terms(name):
    model = build_model(name, (C, T), CLASSES, torch.Generator().manual_seed(1))
    rng = np.random.default_rng(0)
    correction = {key: 0.1 * rng.normal(size=p.shape) for key, p in model.named_parameters()}
    assert_close(*both(model, FULL, correction=correction), get_state(model))


@pytest.mark.parametrize("batch_size", [1, 7, 44, 45, 1000])
@pytest.mark.parametrize("name", ["cnn", "cnn-pool"])
def test_batches_of_any_size(name, batch_size):
    """Also a last one that is short, and one of a single window."""
    model = build_model(name, (C, T), CLASSES, torch.Generator().manual_seed(1))
    start = get_state(model)
    assert_close(*both(model, replace(PLAIN, batch_size=batch_size, epochs=1, lr=0.01)), start)


@pytest.mark.parametrize("shape", [(1, 4), (3, 5), (17, 31), (64, 128)])
def test_windows_of_any_shape(shape):
    model = build_model("cnn-pool", shape, CLASSES, torch.Generator().manual_seed(1))
    start = get_state(model)
    assert_close(*both(model, replace(FULL, epochs=1), shape=shape, windows=20), start)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("size", "steps"), [(2, 26), (2, 27), (3, 26), (4, 31)])
def test_maxima_of_any_size(monkeypatch, kernel, size, steps):
    """Steps that fill the last maximum, and steps that are left over, which have no gradient."""
    use_kernel(monkeypatch, kernel)
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv1d(C, 19, 3, padding=1), nn.MaxPool1d(size), nn.ReLU(), nn.Conv1d(19, 5, 1),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(5, CLASSES),
    )  # fmt: skip
    start = get_state(model)
    assert_close(*both(model, replace(PLAIN, epochs=1), shape=(C, steps)), start)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_networks_of_others_with_dropout(seed):
    """The masks are PyTorch's own, drawn from the client's stream."""
    model, results = random_network(seed, C, T, CLASSES, dropout=True), []
    state = get_state(model)
    for kernel in ("native", "torch"):
        draws = torch.Generator().manual_seed(4)
        results.append(trained(model, replace(PLAIN, epochs=1, kernel=kernel), state=state, draws=draws))
    assert_close(*results, state)


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_clients_at_once_have_the_bits_of_one_alone(monkeypatch, kernel):
    use_kernel(monkeypatch, kernel)
    models = [build_model("cnn", (C, T), CLASSES, torch.Generator().manual_seed(1)) for _ in range(3)]
    alone = trained(models[0], FULL).state
    together = {}

    def client(number):
        together[number] = trained(models[number], FULL).state

    threads = [threading.Thread(target=client, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for state in together.values():
        assert all(np.array_equal(state[name], alone[name]) for name in alone)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["cnn", "cnn-pool"])
def test_evaluation(monkeypatch, kernel, name):
    """The same loss but for rounding, the same predictions; parts are parts of one whole."""
    use_kernel(monkeypatch, kernel)
    model = build_model(name, (C, T), CLASSES, torch.Generator().manual_seed(1))
    trained(model, PLAIN)
    x, y = learnable(150, C, T, CLASSES, seed=2)
    native = evaluate_parts(model, x, y, [90, 60], kernel="native")
    eager = evaluate_parts(model, x, y, [90, 60])
    for got, expected in zip(native, eager, strict=True):
        assert got.loss == pytest.approx(expected.loss, rel=1e-5)
        assert np.array_equal(got.confusion, expected.confusion)
        assert np.array_equal(got.values, expected.values)
    one = evaluate_parts(model, x[90:], y[90:], [60], kernel="native")[0]
    assert one.loss == pytest.approx(native[1].loss, rel=1e-12)
    assert model.training


def test_an_evaluation_may_come_before_any_training():
    """The plan is made there: of unseen clients, or before the first job on a virtual clock ends."""
    model = build_model("cnn", (C, T), CLASSES, torch.Generator().manual_seed(5))
    x, y = learnable(9, C, T, CLASSES)
    (native,) = evaluate_parts(model, x, y, [9], kernel="native")
    assert isinstance(native_plan(model, (C, T), "native"), Plan)
    assert native.loss == pytest.approx(evaluate_parts(model, x, y, [9])[0].loss, rel=1e-5)


def test_the_windows_may_be_a_view():
    """The order in memory changes nothing."""
    model = build_model("cnn", (C, T), CLASSES, torch.Generator().manual_seed(1))
    x, y = learnable(N, C, T, CLASSES)
    state = get_state(model)
    results = [
        train(model, windows, y, PLAIN, torch.Generator().manual_seed(9), state=state)
        for windows in (x, x.transpose(0, 2).contiguous().transpose(0, 2))
    ]
    assert all(np.array_equal(results[0].state[name], results[1].state[name]) for name in state)


@pytest.mark.parametrize("name", ["cnn", "cnn-pool"])
def test_what_is_not_finite_is_noticed_as_by_pytorch(name):
    model = build_model(name, (C, T), CLASSES, torch.Generator().manual_seed(1))
    said = []
    for kernel in ("native", "torch"):
        with pytest.raises(FloatingPointError) as error:
            trained(model, replace(PLAIN, lr=1e30, kernel=kernel), state=get_state(model))
        said.append(str(error.value))
    assert said[0].startswith("training: loss is ")
    x, y = learnable(N, C, T, CLASSES)
    x[3, 2, 1] = float("nan")
    model = build_model(name, (C, T), CLASSES, torch.Generator().manual_seed(1))
    with pytest.raises(FloatingPointError, match="training: loss is nan"):
        train(model, x, y, PLAIN, torch.Generator().manual_seed(9))


def test_errors_are_those_of_pytorch():
    model = build_model("mlp-tiny", (C, T), CLASSES, torch.Generator().manual_seed(1))
    for kernel in ("native", "torch"):
        settings = replace(PLAIN, batch_size=44, kernel=kernel)
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            trained(model, settings, windows=45)
        x, y = learnable(10, C, T, CLASSES)
        with pytest.raises(IndexError, match="Target 9 is out of bounds"):
            train(model, x, y.fill_(9), replace(PLAIN, kernel=kernel), torch.Generator())


def test_what_is_not_known_is_trained_by_pytorch():
    """The same bits as without the option."""
    model = nn.Sequential(nn.Conv1d(C, 4, 3), nn.Softplus(), nn.Flatten(), nn.Linear(4 * (T - 2), CLASSES))
    native, eager = both(model, FULL)
    assert all(np.array_equal(native.state[name], eager.state[name]) for name in native.state)


def errors(seed, steps, kernels):
    """Distance of each kernel from double precision after some steps, and of double precision itself.

    The latter begins at weights that are half a float's last bit away. Settings are the floats that kernels
    compute with.
    """
    model = random_network(seed, C, T, CLASSES)
    settings = LocalTraining(
        lr=float(np.float32(0.02)), momentum=float(np.float32(0.9)), weight_decay=float(np.float32(1e-4)),
        clip_norm=1.0, epochs=steps // 5, batch_size=16,
    )  # fmt: skip
    x, y = learnable(80, C, T, CLASSES, seed=seed)
    state = get_state(model)
    truth = in_double(model, x, y, settings, torch.Generator().manual_seed(9))
    near = copy.deepcopy(model).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in near.parameters():
            weights *= (
                1 + (2 * torch.rand(weights.shape, generator=generator, dtype=torch.double) - 1) * 2**-24
            )
    found = {"double": in_double(near, x, y, settings, torch.Generator().manual_seed(9))}
    for kernel in kernels:
        with pytest.MonkeyPatch.context() as patch:
            if kernel != "torch":
                patch.setenv("FEDGE_KERNEL", kernel)
            used = replace(settings, kernel="torch" if kernel == "torch" else "native")
            result = train(model, x, y, used, torch.Generator().manual_seed(9), state=state)
            found[kernel] = flat_weights(model, result.state)
    return {name: float(np.linalg.norm(weights - truth)) for name, weights in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_errors_are_as_small_as_pytorchs(monkeypatch, kernel):
    """Of six random networks after twenty steps, against double precision."""
    use_kernel(monkeypatch, kernel)
    found = [errors(seed, 20, ("torch", kernel)) for seed in range(6)]
    ratios = np.array([error[kernel] / error["torch"] for error in found])
    assert np.exp(np.log(ratios).mean()) < 1.2
    assert ratios.max() < 4


@pytest.mark.soak
def test_errors_stay_as_small_as_pytorchs():
    """Of forty random networks after two hundred steps.

    In some networks a number comes so near to the edge of a ReLU, or to another that it is pooled with, that
    rounding decides which side it is on, and whoever is on the other side is far from double precision from
    there on: PyTorch, any kernel, and double precision itself begun half a last bit of a float away. Such
    jumps are counted; no kernel has many more of them than PyTorch. Errors are compared elsewhere.
    """
    names = ("torch", *kernels())
    found = [errors(seed, 200, names) for seed in range(100, 140)]
    least = np.array([min(error[name] for name in names) for error in found])
    jumps = {name: np.array([error[name] for error in found]) > 3 * least for name in ("double", *names)}
    calm = ~np.any([jumps[name] for name in names], axis=0)
    print(f"calm: {calm.sum()} of {len(found)} networks")
    for name in ("double", *names):
        ratios = np.array([error[name] / error["torch"] for error in found])[calm]
        mean = float(np.exp(np.log(ratios).mean()))
        print(f"{name:8} {jumps[name].sum():2} jumps; error / PyTorch's, where calm: {mean:.3f}, "
              f"{ratios.min():.2f} to {ratios.max():.2f}")  # fmt: skip
        assert mean <= 1.0
        assert jumps[name].sum() <= jumps["torch"].sum() + 8
