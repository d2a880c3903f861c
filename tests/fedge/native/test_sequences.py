"""Sequences by the native step: cells by hand, networks against PyTorch, errors against doubles."""

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from any_networks import KERNELS, flat_weights, in_double, kernels, needs_native, use_kernel
from sequence_networks import Sequence, sequence_case, sequences
from torch import nn

from fedge.native.library import Session
from fedge.native.operations import HANDLERS
from fedge.native.plan import Plan, flat_array, make_plan, plan_of
from fedge.native.trace import trace_operations
from fedge.training.evaluation import evaluate_parts
from fedge.training.kernels import kernel_of
from fedge.training.local import train
from fedge.training.networks.module_state import get_state
from fedge.training.settings import LocalTraining

pytestmark = needs_native

PLAIN = LocalTraining(lr=0.05, epochs=2, batch_size=16, kernel="native")
FULL = replace(PLAIN, momentum=0.9, weight_decay=1e-2, clip_norm=0.5, label_smoothing=0.1, prox_mu=0.1)


def both(model, settings, x, y, correction=None, draws=False):
    """Results of the native step and of PyTorch for one model."""
    state, found = get_state(model), []
    for kernel in ("native", "torch"):
        stream = torch.Generator().manual_seed(4) if draws else None
        order = torch.Generator().manual_seed(9)
        found.append(train(model, x, y, replace(settings, kernel=kernel), order, correction, state, stream))
    return found


def assert_close(native, eager, start):
    """They agree but for rounding."""
    assert native.steps == eager.steps
    assert native.loss == pytest.approx(eager.loss, rel=1e-5)
    for name, expected in eager.state.items():
        moved = np.linalg.norm(expected.astype(float) - start[name])
        rounding = 1e-6 * expected.size**0.5 * (1 + np.abs(expected).max())
        assert np.linalg.norm(native.state[name] - expected) <= 5e-3 * moved + rounding, name


def plan_for(case, kernel):
    """The plan of a case, compared with PyTorch."""
    return make_plan(case.model, case.shape, kernel, tokens=len(case.shape) == 1)


# --- by hand ----------------------------------------------------------------------------------------------


class Answer(nn.Module):
    """Logits: the last answer of a layer on (N, T, C), and zero."""

    def __init__(self, layer, width=1):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 2, bias=False)
        self.head.weight.data = torch.cat([torch.ones(1, width), torch.zeros(1, width)])

    def forward(self, x):
        made = self.layer(x.transpose(1, 2) if x.is_floating_point() else x)
        return self.head((made[0] if isinstance(made, tuple) else made)[:, -1])


def logit(model, kernel, window):
    """The first logit, from the loss log(1 + e^−z) of its class."""
    tokens = window.dtype == np.int64
    plan = make_plan(model, window.shape, kernel, tokens=tokens)
    with Session(plan.evaluation, 1, kernel) as session:
        numbers = dict(model.named_parameters())
        session.begin(flat_array(plan.weights, numbers), np.zeros(0, np.float32), None, np.zeros(6))
        losses, _ = session.evaluate(window[None].astype(np.float32), np.zeros(1, np.int64))
    return -np.log(np.expm1(losses[0]))


def sigma(x):
    return 1 / (1 + math.exp(-x))


def gru_by_hand(steps):
    """One hidden number; weights of r, z, n: .5, −.3, .8 of the input, .2, .4, −.6 of the state."""
    h = 0.0
    for x in steps:
        r, z = sigma(0.5 * x + 0.1 + 0.2 * h + 0.05), sigma(-0.3 * x + 0.2 + 0.4 * h - 0.1)
        n = math.tanh(0.8 * x - 0.3 + r * (-0.6 * h + 0.7))
        h = (1 - z) * n + z * h
    return h


def lstm_by_hand(steps):
    """One hidden number; weights of i, f, g, o: .5, −.3, .8, .1 of inputs, .2, .4, −.6, .9 of states."""
    h = c = 0.0
    for x in steps:
        i, f = sigma(0.5 * x + 0.15 + 0.2 * h), sigma(-0.3 * x + 0.1 + 0.4 * h)
        g, o = math.tanh(0.8 * x + 0.4 - 0.6 * h), sigma(0.1 * x - 0.2 + 0.9 * h)
        c = f * c + i * g
        h = o * math.tanh(c)
    return h


def filled(layer, *weights):
    """A layer whose parameters are given, in the order of their names."""
    for parameter, numbers in zip(layer.parameters(), weights, strict=True):
        parameter.data = torch.tensor(numbers, dtype=torch.float32).view(parameter.shape)
    return layer


STEPS = [0.5, -1.0, 2.0]
GRU = ([0.5, -0.3, 0.8], [0.2, 0.4, -0.6], [0.1, 0.2, -0.3], [0.05, -0.1, 0.7])
LSTM = ([0.5, -0.3, 0.8, 0.1], [0.2, 0.4, -0.6, 0.9], [0.1, 0.0, 0.5, -0.1], [0.05, 0.1, -0.1, -0.1])


@pytest.mark.parametrize("kernel", KERNELS)
def test_cells_by_hand(monkeypatch, kernel):
    use_kernel(monkeypatch, kernel)
    window = np.array([STEPS])
    gru = filled(nn.GRU(1, 1, batch_first=True), *GRU)
    assert logit(Answer(gru), kernel, window) == pytest.approx(gru_by_hand(STEPS), rel=1e-5)
    lstm = filled(nn.LSTM(1, 1, batch_first=True), *LSTM)
    assert logit(Answer(lstm), kernel, window) == pytest.approx(lstm_by_hand(STEPS), rel=1e-5)
    two = filled(nn.GRU(1, 1, batch_first=True, bidirectional=True), *GRU, *GRU)
    there_and_back = gru_by_hand(STEPS) + gru_by_hand(STEPS[2:])  # backwards, the last step is the first
    assert logit(Answer(two, 2), kernel, window) == pytest.approx(there_and_back, rel=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_norms_embeddings_and_curves_by_hand(monkeypatch, kernel):
    use_kernel(monkeypatch, kernel)
    window = np.array([[0.0, 1.0], [0.0, 3.0]])  # the last step is (1, 3): mean 2, deviation 1
    norm = filled(nn.LayerNorm(2, eps=0.0), [2.0, 3.0], [0.5, 0.25])
    assert logit(Answer(norm, 2), kernel, window + 0.0) == pytest.approx(-2 + 0.5 + 3 + 0.25, rel=1e-5)
    rows = filled(nn.Embedding(3, 2), [1.0, 2.0, 0.25, 0.5, 5.0, 6.0])
    assert logit(Answer(rows, 2), kernel, np.array([2, 0, 1])) == pytest.approx(0.75, rel=1e-5)
    for curve, expected in (
        (nn.Sigmoid(), sigma),
        (nn.Tanh(), math.tanh),
        (nn.SiLU(), lambda x: x * sigma(x)),
    ):
        layer = nn.Sequential(filled(nn.Linear(1, 1, bias=False), [1.0]), curve)
        for x in (-30.0, -2.0, -1e-3, 0.4, 0.9, 5.0):
            found = logit(Answer(layer), kernel, np.array([[7.0, x]]))
            assert found == pytest.approx(expected(x), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_groups_by_hand(monkeypatch, kernel):
    """Two groups of two channels and two steps; of 1, 3, 5, 7, the last is 3 / √5 from the mean."""
    use_kernel(monkeypatch, kernel)

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.head = nn.GroupNorm(2, 4, eps=0.0), nn.Linear(1, 2, bias=False)
            self.head.weight.data = torch.tensor([[1.0], [0.0]])

        def forward(self, x):
            return self.head(self.norm(x)[:, 3:, -1])

    window = np.array([[0.0, 1.0], [2.0, 9.0], [1.0, 3.0], [5.0, 7.0]])
    assert logit(Last(), kernel, window) == pytest.approx(3 / math.sqrt(5), rel=1e-5)


# --- against PyTorch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seeds", [range(15), range(15, 30)], ids=["first", "second"])
def test_random_networks_on_sequences_are_known(monkeypatch, kernel, seeds):
    """A plan is only made where loss, gradients and statistics agree with PyTorch, each entry for itself."""
    use_kernel(monkeypatch, kernel)
    for seed in seeds:
        case = sequence_case(seed)
        assert plan_for(case, kernel).classes == case.classes, seed


@pytest.mark.parametrize("seed", range(16))
def test_networks_on_sequences_train_as_by_pytorch(seed):
    """With dropout, also between layers, whose masks are PyTorch's own, from the client's stream."""
    case = sequence_case(100 + seed)
    x, y = sequences(case, seed)
    settings = replace(PLAIN, epochs=1, lr=0.01, batch_size=case.batch)
    assert_close(*both(case.model, settings, x, y, draws=True), get_state(case.model))


def usual(kind=nn.GRU, layers=2):
    """Two layers in both directions, and a head with a norm."""
    torch.manual_seed(5)
    return Sequence(
        [kind(3, 17, layers, batch_first=True, bidirectional=True), nn.LayerNorm(34)],
        "mean",
        34,
        11,
        4,
        False,
    )


def windows(count=45, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (count,), generator=generator)
    x = torch.randn(count, 3, 11, generator=generator)
    x[torch.arange(count), y % 3] += 0.5
    return x, y


@pytest.mark.parametrize("settings", [PLAIN, FULL], ids=["plain", "all terms"])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_every_term_of_a_step(kind, settings):
    model = usual(kind)
    rng = np.random.default_rng(0)
    correction = {name: 0.1 * rng.normal(size=p.shape) for name, p in model.named_parameters()}
    assert_close(*both(model, settings, *windows(), correction), get_state(model))


def test_evaluation_of_sequences():
    """The same loss but for rounding, the same predictions; parts are parts of one whole, to the last bit."""
    model, (x, y) = usual(), windows(150)
    native = evaluate_parts(model, x, y, [90, 60], kernel="native")
    for got, expected in zip(native, evaluate_parts(model, x, y, [90, 60]), strict=True):
        assert got.loss == pytest.approx(expected.loss, rel=1e-5)
        assert np.array_equal(got.confusion, expected.confusion)
    one = evaluate_parts(model, x[90:], y[90:], [60], kernel="native")[0]
    assert one.loss == pytest.approx(native[1].loss, rel=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_clients_at_once_have_the_bits_of_one_alone(monkeypatch, kernel):
    use_kernel(monkeypatch, kernel)
    x, y = windows()
    models, together = [usual(nn.LSTM) for _ in range(3)], {}

    def client(number):
        order = torch.Generator().manual_seed(9)
        together[number] = train(models[number], x, y, FULL, order, state=get_state(models[number])).state

    client(0)
    threads = [threading.Thread(target=client, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for state in together.values():
        assert all(np.array_equal(state[name], together[0][name]) for name in state)


def ratios(kernel, seeds, epochs):
    """Distance of the native step to double precision over that of PyTorch, network by network."""
    found = []
    for seed in seeds:
        case = sequence_case(seed, dropout=False)
        x, y = sequences(case, seed)
        settings = replace(PLAIN, lr=2**-6, batch_size=case.batch, epochs=epochs)
        model = case.model
        truth = in_double(model, x, y, settings, torch.Generator().manual_seed(9))
        off = [
            float(np.linalg.norm(flat_weights(model, result.state) - truth))
            for result in both(model, settings, x, y)
        ]
        found.append((off[0] + 1e-12) / (off[1] + 1e-12))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_errors_are_as_small_as_pytorchs(monkeypatch, kernel):
    """Of ten random networks on numbers after some steps, against double precision."""
    use_kernel(monkeypatch, kernel)
    found = ratios(kernel, [seed for seed in range(201, 214) if seed % 4], 2)
    assert np.exp(np.log(found).mean()) < 1.2
    assert found.max() < 8


@pytest.mark.soak
@pytest.mark.parametrize("kernel", KERNELS)
def test_errors_stay_as_small_as_pytorchs(monkeypatch, kernel):
    """Of sixty random networks on numbers after many steps."""
    use_kernel(monkeypatch, kernel)
    found = ratios(kernel, [seed for seed in range(400, 480) if seed % 4], 20)
    mean = float(np.exp(np.log(found).mean()))
    print(
        f"{kernel}: error / PyTorch's of {len(found)} networks: "
        f"{mean:.3f}, {found.min():.2f} to {found.max():.2f}"
    )
    assert mean <= 1.05
    assert np.median(found) <= 1.05


# --- what is not known ------------------------------------------------------------------------------------


class Same(nn.Module):
    """Layers with a forward of their own."""

    def __init__(self, forward):
        super().__init__()
        self.gru, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 2)
        self.lstm = nn.LSTM(3, 4, proj_size=2)
        self._forward = forward

    def forward(self, x):
        return self.head(self._forward(self, x.transpose(1, 2)))


UNKNOWN = {
    "an initial state other than zero": (
        lambda net, x: net.gru(x, torch.ones(1, len(x), 4))[0][:, -1],
        "ones",
    ),
    "a projection": (lambda net, x: net.lstm(x.transpose(0, 1))[0][-1], "a projection of its state"),
    "another order": (lambda net, x: net.gru(x.transpose(1, 2)[:, :, :3])[0][:, -1], "axes N, C, T"),
    "a part in steps": (lambda net, x: net.gru(x)[0][:, ::2].mean(1), "a part in steps"),
    "some windows": (lambda net, x: net.gru(x)[0][:1].mean(1), "a part of axis N"),
    "the cell": (lambda net, x: nn.functional.pad(net.gru(x)[0][:, -1], (0, 0)), "pad"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_is_not_known_of_sequences_is_told(what):
    words, why = UNKNOWN[what]
    told = plan_of(Same(words), (3, 5))
    assert isinstance(told, str)
    assert why in told


def test_layers_of_steps_are_convolutions_of_one_tap():
    model = Sequence([nn.Linear(3, 5), nn.SiLU(), nn.GRU(5, 7, batch_first=True)], "states", 7, 11, 4, False)
    kinds = [node.kind for node in trace_operations(model, (3, 11), True, HANDLERS).nodes]
    assert kinds == ["conv", "silu", "gru", "pick", "linear"]


def test_tokens_without_a_row_are_an_error_as_by_pytorch():
    case = sequence_case(4)
    x, y = sequences(case)
    for wrong in (-1, case.model.layers[0].num_embeddings):
        x[0, 0] = wrong
        for kernel in ("native", "torch"):
            with pytest.raises(IndexError, match="index out of range in self"):
                train(case.model, x, y, replace(PLAIN, kernel=kernel), torch.Generator())


def test_factors_of_recurrent_layers_are_not_rounded():
    """With train.precision bf16 PyTorch trains, and says why."""
    kernel = kernel_of(usual(), (3, 11), "native", "bf16")
    assert kernel.name == "torch"
    assert kernel.reason == "the native step does not round factors of recurrent layers to bf16"


@pytest.mark.parametrize("at", [0, 1, 2])
def test_weights_that_do_not_fit_are_refused(at):
    """Each size of a recurrent layer's weights, changed by itself, before anything is computed with it."""
    plan = plan_of(Answer(nn.GRU(3, 5, batch_first=True), 5), (3, 7))
    assert isinstance(plan, Plan), plan
    words = plan.evaluation.copy()
    (begin,) = (i for i in range(len(words) - 2) if list(words[i : i + 3]) == [15, 3, 1])
    with Session(words, 2, kernels()[-1]):
        pass
    words[begin + at] += 1
    with pytest.raises(ValueError, match=r"weights do not fit|lies outside"):
        Session(words, 2, kernels()[-1])
