"""The recorded step: equal to the plain one on a GPU, given up cleanly where there is none."""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedge.config.registers.parts import MODELS
from fedge.config.registers.traits import WINDOWS
from fedge.training import sgd as training
from fedge.training.cuda_graph import GraphedStep, _is_close, graphed_or_plain
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.settings import LocalTraining

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_without_cuda_the_plain_step_is_kept_and_nothing_has_moved(caplog):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    weight = torch.ones(3)

    def step(x, y):
        weight.mul_(2)
        return weight.sum()

    assert graphed_or_plain(step, [weight], torch.zeros(1), torch.zeros(1)) is step
    assert weight.tolist() == [1, 1, 1]
    assert "train.cuda-graph: plain steps instead" in caplog.text


def test_close_allows_the_order_of_sums_and_nothing_more():
    expected = torch.tensor([1.0, -2.0])
    assert _is_close(expected + 1e-5, expected)
    assert not _is_close(expected + 1e-3, expected)
    assert not _is_close(torch.tensor([torch.nan, 0.0]), expected)
    assert _is_close(torch.tensor(3), torch.tensor(3))
    assert not _is_close(torch.tensor(3), torch.tensor(4))
    assert _is_close(torch.zeros(0), torch.zeros(0))


class FakeGraph:
    """A graph on a CPU: the last step that was taken while it recorded, again; `odd` changes it."""

    odd = staticmethod(lambda number: None)

    def __init__(self):
        self.replays, self.again = 0, None

    def replay(self):
        self.replays += 1
        self.again()
        type(self).odd(self.replays)


@pytest.fixture
def fake_cuda(monkeypatch):
    """Streams and graphs on a CPU."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    made = []

    @contextmanager
    def recording(graph, capture_error_mode):
        made.append(graph)
        yield

    monkeypatch.setattr(torch.cuda, "graph", recording)
    return made


def descent(made):
    """Weights w and a step w ← w (1 − .1 mean(x y)), which tells a graph in the making how to go again."""
    weight = torch.ones(3)

    def step(x, y):
        def go():
            weight.sub_(0.1 * (x * y[:, None]).mean(0) * weight)
            return weight.sum()

        if made and made[-1].again is None:
            made[-1].again = go
        return go()

    return weight, step


X, Y = torch.arange(12.0).view(4, 3) / 12, torch.tensor([1.0, 2.0, 0.5, 1.0])


def test_a_graph_of_the_same_steps_is_used_and_nothing_has_moved(fake_cuda):
    weight, step = descent(fake_cuda)
    graphed = graphed_or_plain(step, [weight], X, Y)
    assert isinstance(graphed, GraphedStep)
    assert weight.tolist() == [1, 1, 1]
    graphed(2 * X, Y)
    expected, plain = descent([])
    plain(2 * X, Y)
    assert torch.equal(weight, expected)


def test_a_graph_that_parts_only_after_some_steps_is_not_used(fake_cuda, monkeypatch, caplog):
    """Its first step is right; memory that something else overwrites shows later."""
    weight, step = descent(fake_cuda)
    monkeypatch.setattr(FakeGraph, "odd", staticmethod(lambda n: weight.mul_(0.9) if n == 2 else None))
    assert graphed_or_plain(step, [weight], X, Y) is step
    assert weight.tolist() == [1, 1, 1]
    assert "the recorded step does not compute what the plain step does" in caplog.text


@pytest.mark.parametrize(
    ("windows", "epochs", "steps", "is_recorded"),
    [
        (70, 15, 0, True),  # two full batches and a small one per pass
        (70, 14, 0, False),
        (70, 1, 45, True),  # fifteen passes, whatever the epochs
        (70, 99, 44, True),
        (70, 1, 43, False),
        (31, 99, 0, False),  # no full batch
    ],
)
def test_a_step_is_recorded_from_thirty_full_batches_on(windows, epochs, steps, is_recorded, monkeypatch):
    monkeypatch.setattr(training, "recorded_when_known", lambda *_: "recorded")
    settings = LocalTraining(lr=0.1, epochs=epochs, steps=steps, batch_size=32)
    sgd = SimpleNamespace(
        settings=settings, optimizer=SimpleNamespace(memory=[]), step="plain", weights=[], draws=None
    )
    x = SimpleNamespace(device=torch.device("cuda"))
    found = training.full_batch_step(torch.nn.Linear(1, 1), sgd, x, range(windows))
    assert found == ("recorded" if is_recorded else "plain")


@needs_gpu
@pytest.mark.parametrize("name", MODELS.names_with(WINDOWS))
def test_graph_gives_the_weights_of_plain_steps(name, monkeypatch):
    monkeypatch.setattr(training, "GRAPH_FROM", 1)
    recorded = []
    monkeypatch.setattr(
        training, "graphed_or_plain", lambda *args: recorded.append(GraphedStep(*args)) or recorded[-1]
    )
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(150, 6, 32, generator=generator), torch.randint(0, 4, (150,), generator=generator)
    settings = LocalTraining(lr=0.05, momentum=0.9, clip_norm=1.0, epochs=2, batch_size=32, prox_mu=0.1)
    states = []
    for graph in (True, False):
        model = build_model(name, (6, 32), 4, torch.Generator().manual_seed(1)).to("cuda")
        run = replace(settings, cuda_graph=graph)
        states.append(train(model, x, y, run, torch.Generator().manual_seed(2)).state)
    assert len(recorded) == 1
    for key, plain in states[1].items():
        np.testing.assert_allclose(states[0][key], plain, rtol=1e-3, atol=1e-4, err_msg=key)
