"""Schedules: the step size of every global round as a factor on `train.lr`.

A schedule is called with the global round r (1, 2, …) and its arguments only, so a run continued for more
rounds keeps its schedule. A user's own schedule is a function of the same form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from fedge.config.registers.determinism import call_again, call_checked
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, refuse_duplicate_arguments, shown
from fedge.config.registers.parts import SCHEDULES
from fedge.config.registers.register import refuse_wrong_signature
from fedge.config.sections.train import TrainConfig

_LEAST = 2.0**-126  # the smallest normal float32: with less no weight moves, and SCAFFOLD divides by it


def constant(global_round: int, warmup: int = 0) -> float:
    """min(1, r / w): the same in all rounds, after a linear rise over the first w = `warmup` of them.

    >>> [constant(r, warmup=4) for r in (1, 2, 4, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return min(1.0, global_round / warmup) if warmup else 1.0


def exponential(global_round: int, decay: float = 0.99, warmup: int = 0) -> float:
    """γ^(r − 1), γ = `decay`, set by `train.lr-decay`.

    >>> [exponential(r, decay=0.5) for r in (1, 2, 3)]
    [1.0, 0.5, 0.25]
    """
    return float(decay ** (global_round - 1) * constant(global_round, warmup))


def cosine(global_round: int, rounds: int, last: float = 0.01, warmup: int = 0) -> float:
    """l + (1 − l) (1 + cos(π (r − 1) / (R − 1))) / 2 to round R = `rounds`, then l = `last`.

    Source: Loshchilov and Hutter 2017, SGDR, equation 5, without restarts.

    >>> [round(cosine(r, rounds=3, last=0.2), 2) for r in (1, 2, 3, 4)]
    [1.0, 0.6, 0.2, 0.2]
    """
    if type(rounds) is not int or rounds < 1:
        raise ConfigError(
            f"train.schedule-args.rounds must be a whole number of at least 1, but is {shown(rounds)}; set "
            f"it to num-server-rounds"
        )
    share = min(1.0, (global_round - 1) / max(1, rounds - 1))
    return (last + (1 - last) * (1 + math.cos(math.pi * share)) / 2) * constant(global_round, warmup)


def steps(global_round: int, at: Sequence[int] | str, factor: float = 0.1, warmup: int = 0) -> float:
    """f^n, n the number of past rounds in `at`, f = `factor`; `at` as "30,60" or [30, 60].

    >>> [round(steps(r, at="3,5"), 3) for r in (1, 2, 3, 4, 5)]
    [1.0, 1.0, 0.1, 0.1, 0.01]
    """
    milestones_passed = sum(global_round >= first for first in _rounds_in(at))
    return float(factor**milestones_passed) * constant(global_round, warmup)


def _rounds_in(at: Sequence[int] | str) -> list[int]:
    """Rounds of "30,60" or [30, 60].

    Raises:
        ConfigError: there is none, or something else.
    """
    words = at.split(",") if isinstance(at, str) else at if isinstance(at, list | tuple) else []
    rounds = [
        int(word) for word in words if type(word) is int or (type(word) is str and word.strip().isdecimal())
    ]
    if not rounds or len(rounds) < len(words) or min(rounds) < 1:
        raise ConfigError(
            f"train.schedule-args.at must be rounds of at least 1, separated by commas, but is {shown(at)}; "
            f'set for example train.schedule-args.at="30,60"'
        )
    return rounds


def step_size(config: TrainConfig, global_round: int) -> float:
    """η_r = η · the schedule's factor in a global round (1, 2, …).

    >>> [round(step_size(TrainConfig(lr=0.1, lr_decay=0.5), r), 4) for r in (1, 2, 3)]
    [0.1, 0.05, 0.025]
    """
    return float(config.lr * SCHEDULES.load(config.schedule)(global_round, **_arguments(config)))


def _arguments(config: TrainConfig) -> dict[str, Any]:
    """Keyword arguments of the schedule."""
    arguments = config.arguments("schedule")
    if config.schedule in SCHEDULES.reading("train.lr-decay"):
        refuse_duplicate_arguments("train.schedule-args", arguments, {"decay": "train.lr-decay"})
        arguments = {"decay": config.lr_decay, **arguments}
    return arguments


def refuse_schedule(config: TrainConfig, rounds: int) -> None:
    """Raise ConfigError for a schedule that fails, or gives a round a step size too small to move weights.

    Args:
        config: configuration of the run.
        rounds: global rounds of the run.
    """

    def checked_sizes() -> list[float]:
        return [
            call_again(SCHEDULES, config.schedule, partial(_checked_size, config, global_round))
            for global_round in range(1, rounds + 1)
        ]

    label, schedule = f"train.schedule {config.schedule}", SCHEDULES.load(config.schedule)
    refuse_wrong_signature(schedule, label, "train.schedule-args", _arguments(config), ("global_round",))
    call_checked(SCHEDULES, config.schedule, checked_sizes, in_threads=True)


def _checked_size(config: TrainConfig, global_round: int) -> float:
    """The step size of a round; ConfigError if it is below the smallest."""
    label = f"train.schedule {config.schedule}"
    try:
        size = step_size(config, global_round)
    except ConfigError:
        raise
    except own_errors() as error:
        raise ConfigError(
            f"{label} fails in global round {global_round}: {own_error(error)}; "
            f"fix it, or change train.schedule-args"
        ) from error
    if not _LEAST <= size < math.inf:
        raise ConfigError(
            f"{label} must leave a step size of at least {_LEAST:.2g} in every round, but in round "
            f"{global_round} it is {shown(size)}; change train.schedule-args"
        )
    return size
