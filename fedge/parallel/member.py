"""Program of one training process of a client; `fedge.parallel.team` starts it as a module.

It inherits a socket to its client, their shared memory, and the file through which a client's processes find
each other. They communicate only over the loopback interface, and end with the client's process.
"""

import base64
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from fedge.config.registers.failing import own_errors, place_by_name
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import MODELS
from fedge.config.registers.register import add_search_folders
from fedge.parallel.arrays import Block
from fedge.parallel.channel import ClosedError, receive, send_message
from fedge.parallel.sgd import SharedNetwork, share_network, train_share
from fedge.parallel.shares import ProcessRank
from fedge.process.endings.parent import die_with_parent
from fedge.training.gpu import settle_gpus
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import get_state, load_state, tensor_of
from fedge.training.networks.own_models import OwnFit
from fedge.training.networks.unsaved_state import Unsaved
from fedge.training.settings import LocalTraining

_FOR_EVER = timedelta(days=365)  # the client watches instead: it ends a process that stays silent


@dataclass(frozen=True)
class Inherited:
    """Inheritance of a process from `fedge.parallel.team`: descriptors, and its place in the team."""

    rank: int
    size: int
    connection: int
    states: int
    windows: int
    meeting: str  # path of the file through which processes find each other

    @classmethod
    def from_words(cls, words: list[str]) -> "Inherited":
        """The inheritance given on the command line."""
        rank, size, connection, states, windows = map(int, words[:-1])
        return cls(rank, size, connection, states, windows, words[-1])


class Member:
    """One process, which keeps its network from round to round."""

    def __init__(self, inherited: Inherited) -> None:
        self._seat = ProcessRank(inherited.rank, inherited.size)
        self._states, self._windows = Block(inherited.states), Block(inherited.windows)
        self._meeting = inherited.meeting
        self._kind: dict[str, Any] | None = None
        self._network: SharedNetwork | None = None
        self._unsaved: Unsaved | None = None  # state left out by a user's network

    def train(self, job: dict[str, Any]) -> dict[str, Any]:
        """Carry out one training; the first process writes the new state over the old one."""
        network = self._network_of(job["kind"])
        if self._unsaved is not None:
            self._unsaved.restore()
        load_state(network.model, self._states.views(job["state"]))
        correction = self._states.views(job["correction"]) if job["correction"] is not None else None
        windows = self._windows.views(job["windows"])
        order = torch.Generator()
        order.set_state(torch.frombuffer(bytearray(base64.b64decode(job["order"])), dtype=torch.uint8))
        draws = None
        if job["draws"] is not None:
            draws = torch.Generator().manual_seed(job["draws"][self._seat.rank])
        loss, steps = train_share(
            network, tensor_of(windows["x"]), tensor_of(windows["y"]),
            LocalTraining(**job["settings"]), order, correction, draws,
        )  # fmt: skip
        if self._seat.rank == 0:
            self._write_state(job["state"])
        return {"loss": loss, "steps": steps}

    def _write_state(self, layout: list[Any]) -> None:
        """Write the network's state over the initial one, which all processes have read by now."""
        assert self._network is not None
        views = self._states.views(layout)
        for name, array in get_state(self._network.model).items():
            np.copyto(views[name], array, casting="no")

    def _network_of(self, kind: dict[str, Any]) -> SharedNetwork:
        """The network of a kind; connects to the other processes the first time."""
        if self._network is not None and kind == self._kind:
            return self._network
        device = device_of(kind, self._seat.rank)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            settle_gpus(kind["precision"])
        if not dist.is_initialized():
            self._connect(device)
        add_search_folders(*kind["look_in"])
        model = build_model(
            kind["model"], tuple(kind["input_shape"]), kind["classes"], torch.Generator(), kind["arguments"],
            OwnFit(kind["tokens"]),
        )  # fmt: skip
        self._network, self._kind = share_network(model.to(device), self._seat), kind
        self._unsaved = Unsaved(self._network.model) if MODELS.is_own(kind["model"]) else None
        return self._network

    def _connect(self, device: torch.device) -> None:
        """Connect to the other processes: by gloo on CPUs, by NCCL on GPUs."""
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=dist.FileStore(self._meeting, self._seat.size),
            rank=self._seat.rank,
            world_size=self._seat.size,
            timeout=_FOR_EVER,
        )


def device_of(kind: Mapping[str, Any], rank: int) -> torch.device:
    """Device of a process in a team: on GPUs, that of its rank, counted from the team's first.

    >>> device_of({"device": "cuda", "first_gpu": 2}, 1)
    device(type='cuda', index=3)
    """
    if kind["device"] != "cuda":
        return torch.device(kind["device"])
    return torch.device("cuda", kind["first_gpu"] + rank)


def main(words: list[str]) -> None:
    """Serve the client until it is gone."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal's Ctrl-C is for the run, which ends its processes
    die_with_parent()
    inherited = Inherited.from_words(words)
    connection = socket.socket(fileno=inherited.connection)
    member = Member(inherited)
    try:
        while True:
            send_message(connection, _run_job(member, receive(connection)))
    except ClosedError:
        os._exit(0)  # processes waiting for the others would never end


def _run_job(member: Member, job: dict[str, Any]) -> dict[str, Any]:
    """Result of a job, or the reason for its failure."""
    try:
        return member.train(job)
    except own_errors() as error:
        passed_on = (FloatingPointError, ConfigError, ValueError, MemoryError)
        kind = next((k.__name__ for k in passed_on if isinstance(error, k)), type(error).__name__)
        return {"error": kind, "words": f"{error}{place_by_name(error)}"}


if __name__ == "__main__":
    main(sys.argv[1:])
