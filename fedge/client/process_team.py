"""Training of a client by several processes (`train.processes`); each worker keeps a team of them."""

import threading
from collections.abc import Mapping
from itertools import count

import numpy as np
import torch

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import MODELS
from fedge.config.sections.train import TrainConfig
from fedge.data.prepared import ClientData
from fedge.parallel.team import Team, TeamKind
from fedge.training.local import TrainResult
from fedge.training.settings import LocalTraining

_thread_state = threading.local()  # the team of this worker's thread, for all its clients
_teams = count()  # threads of this process with a team so far


def train_together(
    config: TrainConfig,
    data: ClientData,
    device: str,
    start: Mapping[str, np.ndarray],
    settings: LocalTraining,
    generator: torch.Generator,
    correction: Mapping[str, np.ndarray] | None,
    draws: torch.Generator | None,
    timeout_s: float,
) -> TrainResult:
    """Train the model `start` on a client's training windows, on `config.processes` processes.

    Args:
        config: section `train`.
        data: data of the client.
        device: "cpu", or "cuda" for one GPU per process.
        start: name → array of any shape and dtype.
        settings: as in `fedge.parallel.team.Team.train`.
        generator: likewise.
        correction: likewise.
        draws: likewise.
        timeout_s: seconds after which the processes are abandoned.

    Raises:
        ConfigError: there are fewer GPUs than processes, or as in `Team.train`.
        TeamError, ValueError, FloatingPointError: as in `Team.train`.
    """
    refuse_too_few_gpus(config.processes, device)
    team = _team_of_thread(config)
    x, _ = data.train
    kind = TeamKind(
        config.model,
        config.arguments("model"),
        tuple(x.shape[1:]),
        data.classes,
        device,
        data.search_folders,
        config.precision,
        _first_gpu(config.processes) if device == "cuda" else 0,
        x.dtype == np.int64,
    )
    return team.train(kind, start, data.train, settings, generator, correction, draws, timeout_s)


def _team_of_thread(config: TrainConfig) -> Team:
    """This thread's team; a new one for new code of the network, as a process may stay for other runs."""
    key = config.processes, MODELS.load(config.model)
    if getattr(_thread_state, "key", None) != key:
        _thread_state.key, _thread_state.team = key, Team(config.processes)
    team: Team = _thread_state.team
    return team


def _first_gpu(processes: int) -> int:
    """First GPU of this thread's team; teams take turns at the GPUs."""
    if not hasattr(_thread_state, "number"):
        _thread_state.number = next(_teams)
    return first_gpu(_thread_state.number, processes, torch.cuda.device_count())


def first_gpu(team: int, processes: int, num_gpus: int) -> int:
    """First GPU of a team, by number of the team, in a process with `num_gpus` visible GPUs.

    >>> [first_gpu(team, 2, 4) for team in range(3)]
    [0, 2, 0]
    """
    return team % max(1, num_gpus // processes) * processes


def refuse_too_few_gpus(processes: int, device: str) -> None:
    """Raise ConfigError if processes would have to share a GPU, which NCCL does not support."""
    if device == "cuda" and torch.cuda.device_count() < processes:
        raise ConfigError(
            f"train.processes must be at most the GPUs that a client sees, {torch.cuda.device_count()}, but "
            f"is {processes}; set client-resources.num-gpus={processes}, or train.device=cpu"
        )
