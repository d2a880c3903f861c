"""Steps per second of a network on all cores, on a GPU, and with several clients batched on it.

`fedge doctor --gpu` measures the network of the project in which it is called, and stores the result for
`train.device = "auto"` (`fedge.training.device_speeds`).
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedge.doctor.batched_clients import BatchedStep
from fedge.process.resources.threads import available_cores
from fedge.training.cuda_graph import GraphedStep, Step
from fedge.training.device_speeds import StepSpeeds
from fedge.training.local import train
from fedge.training.settings import LocalTraining
from fedge.training.sgd import GRAPH_FROM, Sgd

CLIENTS = 8  # batched on a GPU
_SECONDS = 0.5  # approximate duration of a measurement
_LEAST_STEPS, _MOST_STEPS = 2, 200  # steps of a measurement
_TRIES = 3

Make = Callable[[], nn.Module]


@dataclass(frozen=True)
class Subject:
    """Network and windows to measure.

    Attributes:
        make: function giving a new network on the CPU, always with the same weights.
        x: (N, C, T) float32, or tokens (N, T) int64; at least one batch.
        y: labels, (N, …).
        settings: settings of training.
    """

    make: Make
    x: Tensor
    y: Tensor
    settings: LocalTraining

    def epoch_of(self, steps: int) -> tuple[Tensor, Tensor]:
        """Windows (steps · B, …) and y (steps · B, …) for full batches: the subject's, repeated."""
        rows = torch.arange(steps * self.settings.batch_size) % len(self.y)
        return self.x[rows], self.y[rows]


def speeds_of(subject: Subject, device: str = "cuda") -> StepSpeeds:
    """Steps per second on all cores, and on a GPU without and with graphs."""
    return StepSpeeds(
        cores=cores_speed(subject),
        plain=device_speed(subject, device, is_recorded=False),
        graph=device_speed(subject, device, is_recorded=True),
    )


def cores_speed(subject: Subject) -> float:
    """Steps per second of all cores, a client on each, by the kernel of the settings."""
    cores = available_cores()
    steps = _calibrated_steps(lambda count: _train(subject, subject.make(), count))
    models = [subject.make() for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:

        def train_all() -> None:
            list(pool.map(lambda model: _train(subject, model, steps), models))

        return cores * steps / _fastest_s(train_all)


def device_speed(subject: Subject, device: str, is_recorded: bool) -> float:
    """Steps per second of one client at a time on a device."""
    configured = replace(subject, settings=replace(subject.settings, cuda_graph=is_recorded))
    model = configured.make().to(device)
    steps = max(_calibrated_steps(lambda count: _train(configured, model, count)), GRAPH_FROM)
    return steps / _fastest_s(lambda: _train(configured, model, steps))


def _train(subject: Subject, model: nn.Module, steps: int) -> None:
    """Train a model for some steps; copies its weights to the host, so all work is done."""
    x, y = subject.epoch_of(steps)
    settings = replace(subject.settings, epochs=1, steps=0)
    train(model, x, y, settings, torch.Generator().manual_seed(0))


def _calibrated_steps(work: Callable[[int], object]) -> int:
    """Number of steps that takes about as long as a measurement should."""
    work(1)
    started = time.perf_counter()
    work(_LEAST_STEPS)
    step_s = (time.perf_counter() - started) / _LEAST_STEPS
    return int(min(max(_SECONDS / max(step_s, 1e-6), _LEAST_STEPS), _MOST_STEPS))


def _fastest_s(work: Callable[[], object]) -> float:
    """Seconds of the fastest of several tries."""
    seconds = []
    for _ in range(_TRIES):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


# --- several clients batched -----------------------------------------------------------------------


@dataclass(frozen=True)
class BatchedSpeeds:
    """Steps per second of all clients together on one device, and how closely the methods agree.

    Attributes:
        in_turn: one client's step after another, recorded if the device supports it.
        batched: all clients' steps as one.
        recorded: the same, recorded; 0 if not supported.
        distance: largest difference of weights between the methods after a step, relative to the largest
            weight.
        is_same: whether two batched trainings give the same bits.
    """

    in_turn: float
    batched: float
    recorded: float
    distance: float
    is_same: bool


def batched_speeds(subject: Subject, device: str = "cuda", clients: int = CLIENTS) -> BatchedSpeeds:
    """Speed of the steps of some clients, one after another and batched.

    Raises:
        RuntimeError: an operation of the network cannot be batched.
    """
    x, y = (part.to(device) for part in subject.epoch_of(clients))
    xs, ys = (part.view(clients, subject.settings.batch_size, *part.shape[1:]) for part in (x, y))
    single_steps = [_single_step(subject, device, xs[k], ys[k]) for k in range(clients)]
    batched = BatchedStep(_build_models(subject, device, clients), subject.settings)
    repeated = BatchedStep(_build_models(subject, device, clients), subject.settings)
    for batched_step in (batched, repeated):
        batched_step(xs, ys)
    differences, is_same = [], True
    for k in range(clients):
        sgd = Sgd(subject.make().to(device), subject.settings, None)
        sgd.step(xs[k], ys[k])
        first, second = batched.weights_of(k), repeated.weights_of(k)
        for name, weight in zip(sgd.names, sgd.weights, strict=True):
            scale = max(float(weight.abs().max()), 1e-3)
            differences.append(float((weight - first[name]).abs().max()) / scale)
            is_same = is_same and torch.equal(first[name], second[name])

    def in_turn() -> None:
        for k, step in enumerate(single_steps):
            step(xs[k], ys[k])

    recorded = 0.0
    if device == "cuda":
        graph = GraphedStep(repeated, repeated.state, xs, ys)
        recorded = clients * _calls_per_second(lambda: graph(xs, ys), device)
    return BatchedSpeeds(
        clients * _calls_per_second(in_turn, device),
        clients * _calls_per_second(lambda: batched(xs, ys), device),
        recorded,
        max(differences),
        is_same,
    )


def _build_models(subject: Subject, device: str, clients: int) -> list[nn.Module]:
    """Networks in training mode."""
    return [subject.make().to(device).train() for _ in range(clients)]


def _single_step(subject: Subject, device: str, x: Tensor, y: Tensor) -> Step:
    """One client's step: recorded on a GPU."""
    sgd = Sgd(subject.make().to(device).train(), subject.settings, None)
    if device != "cuda":
        return sgd.step
    return GraphedStep(sgd.step, [*sgd.weights, *(sgd.optimizer.memory or ()), *sgd.model.buffers()], x, y)


def _calls_per_second(work: Callable[[], object], device: str) -> float:
    """Calls per second, including the device's work."""

    def repeat(count: int) -> None:
        for _ in range(count):
            work()
        if device == "cuda":
            torch.cuda.synchronize()

    count = _calibrated_steps(repeat)
    return count / _fastest_s(lambda: repeat(count))
