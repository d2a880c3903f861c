"""Random streams, each derived from (seed, round, client, purpose); nothing draws from global state.

A stream depends on nothing else, neither on the worker that runs a client nor on earlier work there.
"""

import os
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from fedge.config.registers.option import ConfigError, shown

if TYPE_CHECKING:  # loading torch takes seconds, which checks before a run need not spend
    import torch


class Purpose(IntEnum):
    """Purpose of a random stream. The numbers are part of every result: never renumber, only append."""

    MODEL = 0
    PARTITION = 1
    SPLIT = 2
    SAMPLING = 3
    BATCHES = 4
    NOISE = 5
    SCENARIO = 6
    GROUPS = 7
    CLUSTERING = 8
    PERSONAL = 9  # last number of a personal model's stream
    DROPOUT = 10
    DEAL = 11
    DEVICES = 12  # speed of each device
    DEVICE_JOBS = 13  # jitter and dropouts, per attempt
    DEVICE_PICKS = 14  # selection of the idle device to get a job
    AVAILABILITY = 15
    DISTILLATION = 16  # generated windows from which a server learns
    ALGORITHM = 17  # draws of a client's method, other than the order of windows
    DURATION = 18  # draws of a user's duration, per attempt
    MOBILITY = 19  # moves of clients to other leaves before a global round
    ASSOCIATION = 20  # assignment of clients to leaves
    CLIENT_UPLINK = 21  # stochastic rounding of clients' uploads
    SERVER_UPLINK = 22  # stochastic rounding of servers' uploads
    LEAF_PART = 23  # draws of a method at its leaf


def numpy_stream(seed: int, purpose: Purpose, *indices: int) -> np.random.Generator:
    """NumPy generator for (seed, purpose, *indices), e.g. *indices = (leaf round, leaf)."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, indices)))


def torch_stream(seed: int, purpose: Purpose, *indices: int) -> "torch.Generator":
    """torch (CPU) generator for (seed, purpose, *indices)."""
    import torch

    state = _sequence(seed, purpose, indices).generate_state(2, np.uint32)
    generator = torch.Generator()
    generator.manual_seed(int(state[0]) << 32 | int(state[1]))
    return generator


def legacy_stream(seed: int, purpose: Purpose, *indices: int) -> np.random.RandomState:
    """The same as NumPy's older kind of generator, for libraries without support for another."""
    return np.random.RandomState(np.random.MT19937(_sequence(seed, purpose, indices)))


def _sequence(seed: int, purpose: Purpose, indices: tuple[int, ...]) -> np.random.SeedSequence:
    """Seed sequence of a stream.

    The purpose is in the spawn key: in one list with the seed, trailing zeros would not count, and a seed of
    2³² or more would overlap with the next number.
    """
    return np.random.SeedSequence(seed, spawn_key=(int(purpose), *indices))


_MOST_DIGITS = 4000  # Python reads no whole number of more than 4300 digits


def resolve_seed(configured: int, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The seed of the run and its source: ``SEED`` takes precedence over the configuration.

    Args:
        configured: `seed` of the run config.
        environment: mapping in which to look up ``SEED``; by default the process environment.

    Returns:
        (seed, "environment" | "config").

    Raises:
        ConfigError: SEED is not a non-negative whole number.
    """
    text = (os.environ if environment is None else environment).get("SEED", "")
    if not text.strip():
        return configured, "config"
    if not text.strip().isdecimal() or len(text.strip()) > _MOST_DIGITS:
        raise ConfigError(
            f"SEED must be a whole number of at least 0, but is {shown(text)}; try SEED=42 flwr run ."
        )
    return int(text), "environment"
