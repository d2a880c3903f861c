"""Local training against a plain PyTorch loop, and its promises: bits, options, errors."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.config.registers.parts import MODELS
from fedge.config.registers.traits import WINDOWS
from fedge.training.cuda_graph import Step
from fedge.training.evaluation import EvalResult, evaluate
from fedge.training.host import torch_threads
from fedge.training.local import train
from fedge.training.networks.models import build_model, parameter_names
from fedge.training.networks.module_state import State, get_state, load_state, tensor_of
from fedge.training.networks.own_models import OwnDraws
from fedge.training.settings import LocalTraining
from fedge.training.sgd import Sgd, recorded_when_known, refuse_nonfinite_weights

C, T, CLASSES, N = 6, 16, 4, 50
BASE = LocalTraining(lr=0.05, epochs=2, batch_size=16)
FULL = replace(BASE, momentum=0.9, weight_decay=1e-2, clip_norm=0.5, label_smoothing=0.1, prox_mu=0.1)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def problem(name: str = "mlp-tiny") -> tuple[nn.Module, Tensor, Tensor]:
    """A fresh model and learnable data: the class shifts the mean of one channel."""
    generator = seeded()
    y = torch.randint(0, CLASSES, (N,), generator=generator)
    x = torch.randn(N, C, T, generator=generator)
    x[torch.arange(N), y] += 1.0
    return build_model(name, (C, T), CLASSES, generator), x, y


def corrections(model: nn.Module) -> State:
    rng = np.random.default_rng(0)
    return {k: 0.1 * rng.normal(size=model.state_dict()[k].shape) for k in parameter_names(model)}


def plain_train(
    model: nn.Module, x: Tensor, y: Tensor, s: LocalTraining, correction: State | None = None
) -> float:
    """The documented update with `torch.optim` and `clip_grad_norm_`; mean loss over windows."""
    model.train()
    generator = seeded(9)
    named = dict(model.named_parameters())
    start = {name: p.detach().clone() for name, p in named.items()}
    sgd = (  # Adam makes a whole step of the last bits of a gradient that is nearly 0, so by the same kernel
        torch.optim.Adam(model.parameters(), lr=s.lr, weight_decay=s.weight_decay, fused=True)
        if s.optimizer == "adam"
        else torch.optim.SGD(model.parameters(), lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay)
    )
    total, seen, left = 0.0, 0, s.steps or s.epochs * -(-len(y) // s.batch_size)
    while left:
        order = torch.randperm(len(y), generator=generator)
        for first in range(0, len(y), s.batch_size)[:left]:
            batch = order[first : first + s.batch_size]
            left -= 1
            sgd.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch], label_smoothing=s.label_smoothing)
            loss.backward()
            if s.clip_norm:
                nn.utils.clip_grad_norm_(model.parameters(), s.clip_norm)
            for name, p in named.items():
                assert p.grad is not None
                p.grad += s.prox_mu * (p.detach() - start[name])
                if correction is not None:
                    p.grad += torch.from_numpy(correction[name]).float()
            sgd.step()
            total, seen = total + loss.item() * len(batch), seen + len(batch)
    return total / seen


def assert_same_bits(a: State, b: State) -> None:
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


OPTIONS = {
    "plain": BASE,
    "momentum": replace(BASE, momentum=0.9),
    "decay": replace(BASE, weight_decay=0.1),
    "clip": replace(BASE, clip_norm=0.1),
    "clip that never acts": replace(BASE, clip_norm=1e3),
    "smoothing": replace(BASE, label_smoothing=0.2),
    "prox": replace(BASE, prox_mu=1.0),
    "all": FULL,
    "steps, less than a pass": replace(FULL, steps=3),
    "steps, in the third pass": replace(BASE, steps=9),
    "adam": replace(BASE, optimizer="adam", lr=0.01),
    "adam, all": replace(FULL, optimizer="adam", lr=0.01),
}


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ["mlp-tiny", "cnn", "cnn-pool"])
def test_equals_the_plain_loop(name: str, option: str, corrected: bool) -> None:
    settings = OPTIONS[option]
    model, x, y = problem(name)
    correction = corrections(model) if corrected else None
    reference, _, _ = problem(name)
    result = train(model, x, y, settings, seeded(9), correction)
    loss = plain_train(reference, x, y, settings, correction)
    assert result.steps == (settings.steps or 2 * 4)  # 50 windows in batches of 16: the last holds 2
    assert result.loss == pytest.approx(loss, rel=1e-5)
    for key, expected in get_state(reference).items():
        np.testing.assert_allclose(result.state[key], expected, rtol=1e-4, atol=2e-6, err_msg=key)


def test_one_step_by_hand() -> None:
    """Softmax regression on one window x = 1, two classes, weights zero: p = ½, loss = ln 2.

    Gradient of the weights (p − onehot) x = (−½, ½) for label 0, the same for the bias; norm 1.
    Clipped to ½: (−¼, ¼). Correction (1, 0) on the weights only.
    With lr 0.1: w = −0.1 · (¾, ¼), b = −0.1 · (−¼, ¼).
    """
    model = build_model("linear", (1, 1), 2, seeded())
    zero = {"head.weight": np.zeros((2, 1), np.float32), "head.bias": np.zeros(2, np.float32)}
    correction = {"head.weight": np.array([[1.0], [0.0]]), "head.bias": np.zeros(2)}
    settings = LocalTraining(lr=0.1, clip_norm=0.5)
    x, y = torch.ones(1, 1, 1), torch.zeros(1, dtype=torch.int64)
    result = train(model, x, y, settings, seeded(), correction, state=zero)
    assert result.loss == pytest.approx(np.log(2), rel=1e-6)
    assert result.steps == 1
    np.testing.assert_allclose(result.state["head.weight"], [[-0.075], [-0.025]], rtol=1e-5)
    np.testing.assert_allclose(result.state["head.bias"], [0.025, -0.025], rtol=1e-5)


@pytest.mark.parametrize("name", MODELS.names_with(WINDOWS))
def test_learns(name: str) -> None:
    model, x, y = problem(name)
    before = evaluate(model, x, y)
    train(model, x, y, replace(BASE, epochs=40, momentum=0.9), seeded())
    after = evaluate(model, x, y)
    assert after.loss < before.loss
    assert after.accuracy > 0.8


@pytest.mark.parametrize("name", ["cnn", "cnn-pool", "linear"])
def test_same_bits_wherever_x_lies_in_memory(name: str) -> None:
    results, evaluations = [], []
    for offset in (0, 1, 5):
        model, x, y = problem(name)
        moved = torch.empty(x.numel() + 16)[offset : offset + x.numel()].view(x.shape).copy_(x)
        results.append(train(model, moved, y, FULL, seeded(1)).state)
        evaluations.append(evaluate(model, moved, y).loss)
    assert_same_bits(results[0], results[1])
    assert_same_bits(results[0], results[2])
    assert len(set(evaluations)) == 1


def test_a_used_model_trains_to_the_same_bits_from_a_given_state() -> None:
    model, x, y = problem("cnn")
    start = get_state(model)
    first = train(model, x, y, FULL, seeded(1))
    second = train(model, x, y, FULL, seeded(1), state=start)
    assert_same_bits(first.state, second.state)
    assert first.loss == second.loss


def test_global_random_state_is_left_alone() -> None:
    model, x, y = problem()
    torch_before, numpy_before = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    train(model, x, y, BASE, seeded())
    evaluate(model, x, y)
    assert torch.equal(torch_before, torch.get_rng_state())
    assert numpy_before == str(np.random.get_state())  # noqa: NPY002


def test_read_only_mapped_windows_are_neither_written_nor_warned_about(tmp_path: Path) -> None:
    model, x, y = problem("cnn-pool")
    np.save(tmp_path / "x.npy", x.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = train(model, tensor_of(mapped), y, BASE, seeded())
        evaluate(model, tensor_of(mapped), y)
    reference, _, _ = problem("cnn-pool")
    assert_same_bits(result.state, train(reference, x, y, BASE, seeded()).state)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x.numpy())


def test_larger_prox_mu_stays_closer_to_the_start() -> None:
    distances = []
    for prox_mu in (0.0, 0.1, 1.0, 10.0):
        model, x, y = problem("cnn")
        start = get_state(model)
        end = train(model, x, y, replace(BASE, epochs=5, prox_mu=prox_mu), seeded()).state
        distances.append(sum(float(((end[k] - start[k]) ** 2).sum()) for k in parameter_names(model)))
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.2 * distances[0]


def test_correction_moves_parameters_but_never_buffers() -> None:
    """With a step size that hardly moves the weights, only the batches decide the statistics."""
    model, x, y = problem("cnn")
    start = get_state(model)
    tiny = replace(BASE, lr=1e-12)
    plain = train(model, x, y, tiny, seeded(), state=start).state
    corrected = train(model, x, y, tiny, seeded(), corrections(model), state=start).state
    for name, _ in model.named_buffers():
        np.testing.assert_array_equal(plain[name], corrected[name], err_msg=name)
    assert plain["norm1.num_batches_tracked"] == 2 * 4
    assert plain["norm1.num_batches_tracked"].dtype == np.int64
    assert np.abs(plain["norm1.running_mean"]).max() > 0


def test_evaluation_uses_running_statistics_and_changes_nothing() -> None:
    model, x, y = problem("cnn")
    train(model, x, y, BASE, seeded())
    before = get_state(model)
    one_by_one = [evaluate(model, x[i : i + 1], y[i : i + 1]) for i in range(N)]
    together = evaluate(model, x, y, batch_size=16)
    assert model.training
    assert_same_bits(before, get_state(model))
    assert together.loss == pytest.approx(np.mean([e.loss for e in one_by_one]), rel=1e-5)
    np.testing.assert_array_equal(together.confusion, sum(e.confusion for e in one_by_one))
    assert together.confusion.dtype == np.int64
    assert together.samples == together.confusion.sum() == N


def test_scores_by_hand() -> None:
    """Class 0: TP 2, FN 1, FP 0, F1 4/5. Class 1: TP 1, FP 1, F1 2/3. Class 2 is absent from both."""
    result = EvalResult(
        4, 0.0, {"confusion": np.array([[2, 1, 0], [0, 1, 0], [0, 0, 0]])}, np.array([1, 1, 0, 1], bool)
    )
    assert result.accuracy == 0.75
    assert result.macro_f1 == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_state_goes_through_arrays_unchanged_and_unshared() -> None:
    model, _, _ = problem("cnn")
    state = get_state(model)
    assert list(state) == list(model.state_dict())
    kept = {name: array.copy() for name, array in state.items()}
    other = build_model("cnn", (C, T), CLASSES, seeded(5))
    load_state(other, state)
    assert_same_bits(kept, get_state(other))
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1)
    assert_same_bits(kept, state)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"head.bias": None}, "'head.bias' is missing"),
        ({"extra": np.zeros(1)}, "'extra' is unknown"),
        ({"head.bias": np.zeros(CLASSES + 1)}, "shape"),
    ],
)
def test_load_state_refuses(change: dict, rule: str) -> None:
    model, _, _ = problem()
    state = {k: v for k, v in {**get_state(model), **change}.items() if v is not None}
    with pytest.raises(ValueError, match=rule):
        load_state(model, state)


def test_diverging_training_is_an_error_that_names_the_step() -> None:
    model, x, y = problem("linear")
    with pytest.raises(FloatingPointError, match=r"loss is (nan|inf) at step \d+"):
        train(model, x, y, replace(BASE, lr=1e38), seeded())
    model, x, y = problem("linear")
    x[3, 0, 0] = torch.nan
    with pytest.raises(FloatingPointError, match="loss is nan at step 1; look at the model's output"):
        train(model, x, y, replace(BASE, batch_size=N), seeded())


def test_non_finite_weight_is_an_error_that_names_it() -> None:
    """One step: the loss is still finite, the weight is not."""
    model, x, y = problem("linear")
    correction = {name: np.zeros(model.state_dict()[name].shape) for name in parameter_names(model)}
    correction["head.bias"][0] = np.inf
    with pytest.raises(FloatingPointError, match=r"weight 'head.bias' is not finite after 1 step"):
        train(model, x, y, replace(BASE, epochs=1, batch_size=N), seeded(), correction)


@pytest.mark.parametrize(
    ("second", "is_error"),
    [
        ([1.0, 2.0], False),
        ([3e38, 3e38], False),  # only their sum is too large for a float
        ([torch.nan, 1.0], True),
        ([torch.inf, 1.0], True),
        ([torch.inf, -torch.inf], True),
    ],
)
def test_what_is_not_finite_is_found_whatever_its_sum_is(second, is_error) -> None:
    weights = [torch.ones(3), torch.tensor(second)]
    if not is_error:
        refuse_nonfinite_weights(["a", "b"], weights, 7)
        return
    with pytest.raises(FloatingPointError, match="weight 'b' is not finite after 7 steps"):
        refuse_nonfinite_weights(["a", "b"], weights, 7)


def test_non_finite_evaluation_is_an_error() -> None:
    model, x, y = problem()
    x[0] = torch.inf
    with pytest.raises(FloatingPointError, match="loss is"):
        evaluate(model, x, y)


def test_data_that_does_not_fit_is_refused() -> None:
    model, x, y = problem()
    for bad_x, bad_y, rule in [
        (x[:0], y[:0], "no window"),
        (x.double(), y, "float32"),
        (x[0], y, "shape"),
        (x, y[:-1], "y must be int64"),
        (x, y.int(), "y must be int64"),
    ]:
        with pytest.raises(ValueError, match=rule):
            train(model, bad_x, bad_y, BASE, seeded())
        with pytest.raises(ValueError, match=rule):
            evaluate(model, bad_x, bad_y)


def test_correction_that_does_not_fit_is_refused() -> None:
    model, x, y = problem("cnn")
    good = corrections(model)
    with pytest.raises(ValueError, match="running_mean"):
        train(model, x, y, BASE, seeded(), {**good, "norm1.running_mean": np.zeros(64)})
    with pytest.raises(ValueError, match="shape"):
        train(model, x, y, BASE, seeded(), {**good, "head.bias": np.zeros(1)})


@pytest.mark.parametrize(
    "change",
    [
        {"lr": 0.0},
        {"lr": float("nan")},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"clip_norm": float("inf")},
        {"label_smoothing": 1.0},
        {"epochs": 0},
        {"batch_size": 0},
        {"prox_mu": -0.1},
        {"threads": 0},
    ],
)
def test_settings_out_of_range_are_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        LocalTraining(**change)


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


class Drawing(nn.Module):
    """Dropout, or none."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.mean(dim=2)
        return self.head(F.dropout(x, self.p) if self.p else x)


@pytest.mark.parametrize(
    ("draws", "p", "plain"), [(False, 0.0, 0), (True, 0.0, 1), (True, 0.5, 3)], ids=["none", "no", "yes"]
)
def test_a_step_is_recorded_once_and_never_where_the_model_draws(draws: bool, p: float, plain: int) -> None:
    """A model of the user's may draw: its first step tells."""
    recorded: list[int] = []
    replayed: list[int] = []
    sgd = Sgd(Drawing(p), BASE, None, OwnDraws(seeded(1)) if draws else None)

    def replay(x: Tensor, _: Tensor) -> Tensor:
        replayed.append(len(x))
        return torch.zeros(())

    def record(x: Tensor, _: Tensor) -> Step:
        recorded.append(len(x))
        return replay

    step = recorded_when_known(sgd, record)
    for _ in range(3):
        step(torch.randn(5, C, T, generator=seeded(2)), torch.zeros(5, dtype=torch.int64))
    assert replayed == [5] * (3 - plain)
    assert recorded == [5] * (plain < 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", MODELS.names_with(WINDOWS))
def test_gpu_equals_cpu(name: str) -> None:
    model, x, y = problem(name)
    on_cpu = train(model, x, y, replace(BASE, epochs=1), seeded(1))
    model, x, y = problem(name)
    on_gpu = train(model.to("cuda"), x, y, replace(BASE, epochs=1), seeded(1))
    for key, expected in on_cpu.state.items():
        np.testing.assert_allclose(on_gpu.state[key], expected, rtol=1e-2, atol=1e-3, err_msg=key)
