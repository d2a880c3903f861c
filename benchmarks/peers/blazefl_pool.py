"""BlazeFL: its pool of processes with shared memory, which it creates again in every round."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from blazefl.core import (
    IPCMode,
    ProcessPoolClientTrainer,
    SHMHandle,
    deserialize_model,
    process_tensors_in_object,
    serialize_model,
)

from benchmarks.common import WORKERS, Turn, repeat
from benchmarks.plain import Learner, said_of

_learner: Learner | None = None  # inherited by the processes of the pool, which are forks


@dataclass
class Downlink:
    """Message to a client."""

    model: torch.Tensor


@dataclass
class Uplink:
    """Message from a client."""

    client: int
    model: torch.Tensor | SHMHandle
    steps: int = 0
    loss: float = 0.0


@dataclass
class ClientConfig:
    """Further settings of a client."""

    client: int
    epochs: int


class Trainer(ProcessPoolClientTrainer):
    """Clients on two processes."""

    def __init__(self, learner: Learner, epochs: int) -> None:
        self.num_parallels = WORKERS
        self.share_dir = Path()
        self.device = "cpu"
        self.device_count = 0
        self.cache: list[Uplink] = []
        self.ipc_mode = IPCMode.SHARED_MEMORY
        self.stop_event = threading.Event()
        self._size = serialize_model(learner.network).numel()
        self._epochs = epochs

    def get_client_config(self, cid: int) -> ClientConfig:
        """Settings of client `cid`."""
        return ClientConfig(cid, self._epochs)

    def prepare_uplink_package_buffer(self) -> Uplink:
        """Buffer to which a client writes its model."""
        return Uplink(-1, torch.zeros(self._size))

    def local_process(self, payload: Downlink, cid_list: list[int]) -> None:
        """Train the clients without the event, because a thread's event cannot be sent to processes."""
        self.stop_event = _NeverSetEvent()
        super().local_process(payload, cid_list)

    @staticmethod
    def worker(
        config: ClientConfig,
        payload: Downlink,
        device: str,
        stop_event: object,
        *,
        shm_buffer: Uplink | None = None,
    ) -> Uplink:
        """Train a client in a process of the pool."""
        assert _learner is not None
        assert shm_buffer is not None
        assert isinstance(shm_buffer.model, torch.Tensor)
        deserialize_model(_learner.network, payload.model)
        torch.set_num_threads(1)  # forks do not inherit the setting
        steps, loss = _learner.train(config.client, config.epochs)
        shm_buffer.model.copy_(serialize_model(_learner.network))
        return process_tensors_in_object(Uplink(config.client, shm_buffer.model, steps, loss), mode="replace")


class _NeverSetEvent:
    """The event of a run that is never stopped, in a form for sending to processes."""

    def set(self) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""


def contend(turn: Turn, path: str, sizes: Sequence[int], epochs: int, work: str = "home") -> None:
    """Rounds of BlazeFL, largest client first."""
    global _learner
    multiprocessing.set_start_method("fork", force=True)  # as everywhere on Linux; this process was spawned
    _learner = Learner(path, work)
    trainer, model = Trainer(_learner, epochs), serialize_model(_learner.network)
    order = sorted(range(len(sizes)), key=lambda client: -sizes[client])
    _learner.train(order[-1], 1)  # otherwise every fork would load parts of PyTorch: seconds

    def one_round() -> tuple[float, float]:
        trainer.cache = []
        trainer.local_process(Downlink(model), order)
        weights = [sizes[package.client] / sum(sizes) for package in trainer.cache]
        model.copy_(sum(w * package.model for w, package in zip(weights, trainer.cache, strict=True)))
        return said_of((package.steps, package.loss) for package in trainer.cache)

    repeat(turn, one_round, has_report=True)
