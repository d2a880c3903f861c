"""Federated learning written directly in PyTorch: the baseline for other contestants.

    loop    one client after another, averaged per leaf
    pool    the same on `multiprocessing.Pool(2)`, one torch thread each, largest client first

Three leaves of three clients each. `Learner`, a client's training, is also used by simulators taking it from
their users (`benchmarks.peers`).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.common import WORKERS, Turn, repeat
from benchmarks.engines import TRAINING
from benchmarks.step import plain_epoch
from benchmarks.works import WORKS
from hhar.windows.window_file import load_windows

NETWORK = "cnn-pool"
CLIENTS_PER_LEAF = 3

State = dict[str, np.ndarray]
Job = tuple[int, State, int]  # client, its leaf's model, epochs


class Trained(NamedTuple):
    """Result of a client's training; `loss` is the mean of its steps."""

    client: int
    state: State
    steps: int
    loss: float


class Learner:
    """Every client's training windows and one network."""

    def __init__(self, path: str, work: str = "home") -> None:
        torch.set_num_threads(1)
        windows = load_windows(path)
        assert windows.session is not None
        training = np.char.startswith(windows.session, TRAINING)
        self.clients: list[tuple[torch.Tensor, torch.Tensor]] = []
        for user in np.unique(windows.user):
            rows = training & (windows.user == user)
            self.clients.append((torch.from_numpy(windows.x[rows]), torch.from_numpy(windows.y[rows])))
        self.network = WORKS[work].network()

    def train(self, client: int, epochs: int) -> tuple[int, float]:
        """Train the network on a client's windows; returns its steps and their mean loss."""
        generator = torch.Generator().manual_seed(client)
        losses: list[torch.Tensor] = []
        for _ in range(epochs):
            losses += plain_epoch(self.network, *self.clients[client], generator)
        return len(losses), float(torch.stack(losses).mean())


_learner: Learner | None = None  # learner of this process


def prepare_process(path: str, work: str) -> None:
    """Load the windows and create the network, once per process."""
    global _learner
    _learner = Learner(path, work)


def train_client(job: Job) -> Trained:
    """Train a client from its leaf's model."""
    client, state, epochs = job
    assert _learner is not None
    _learner.network.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    steps_and_loss = _learner.train(client, epochs)
    return Trained(client, _copy_state(_learner.network), *steps_and_loss)


def _copy_state(network: torch.nn.Module) -> State:
    return {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}


def said_of(trained: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Contestant's report on a round: steps of all clients, and the mean of their losses."""
    steps, losses = zip(*trained, strict=True)
    return sum(steps), float(np.mean(losses))


class PlainRound:
    """One exchange of three leaves with their clients: train all, average per leaf."""

    def __init__(self, sizes: Sequence[int], epochs: int, work: str) -> None:
        self.models = [_copy_state(WORKS[work].network())] * (len(sizes) // CLIENTS_PER_LEAF)
        self._sizes = sizes
        self._epochs = epochs

    def jobs(self) -> list[Job]:
        """Jobs, largest client first."""
        order = sorted(range(len(self._sizes)), key=lambda client: -self._sizes[client])
        return [(client, self.models[client // CLIENTS_PER_LEAF], self._epochs) for client in order]

    def take(self, results: Iterable[Trained]) -> tuple[float, float]:
        """Average per leaf; returns the report on the round."""
        trained = {result.client: result for result in results}
        self._average({client: result.state for client, result in trained.items()})
        return said_of((result.steps, result.loss) for result in trained.values())

    def _average(self, states: Mapping[int, State]) -> None:
        """Weighted mean per leaf."""
        for leaf in range(len(self.models)):
            members = range(CLIENTS_PER_LEAF * leaf, CLIENTS_PER_LEAF * (leaf + 1))
            total = sum(self._sizes[client] for client in members)
            self.models[leaf] = {
                name: np.asarray(sum(states[c][name] * np.float32(self._sizes[c] / total) for c in members))
                for name in self.models[leaf]  # including arrays of a single number
            }


def contend_loop(turn: Turn, path: str, sizes: Sequence[int], epochs: int, work: str = "home") -> None:
    """The plain loop."""
    prepare_process(path, work)
    plain = PlainRound(sizes, epochs, work)
    repeat(turn, lambda: plain.take(map(train_client, plain.jobs())), has_report=True)


def contend_pool(turn: Turn, path: str, sizes: Sequence[int], epochs: int, work: str = "home") -> None:
    """The plain pool."""
    plain = PlainRound(sizes, epochs, work)
    with multiprocessing.get_context("spawn").Pool(WORKERS, prepare_process, (path, work)) as pool:
        repeat(turn, lambda: plain.take(pool.imap_unordered(train_client, plain.jobs())), has_report=True)
