"""Checks of the data's targets against the run's task, client by client."""

from collections.abc import Callable

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import PARTITIONS, SCENARIOS, SERVER_RULES, TASKS
from fedge.config.registers.traits import BY_CLASS, TELLS_CLASSES
from fedge.data.partition import Partition
from fedge.tasks.configured import task_of
from hhar.windows.window_file import Windows


def refuse_other_targets(config: Config, windows: Windows, deal: Callable[[], Partition]) -> None:
    """Raise ConfigError if y does not fit the task; the message names the first such client.

    Args:
        config: the run's configuration.
        windows: windows of all clients.
        deal: function returning the windows of each client.
    """
    refuse_parts_without_classes(config, has_labels=windows.has_labels, tokens=windows.x.dtype == "int64")
    task, outputs = task_of(config.train), len(windows.classes)
    try:
        with TASKS.explaining_errors(config.train.task, ValueError):
            task.refuse(windows.y, outputs)
    except ConfigError:
        raise
    except ValueError:
        for client, parts in enumerate(deal().clients):
            _refuse_client(config, client, windows.y[np.concatenate(parts)], outputs)
        raise


def _refuse_client(config: Config, client: int, y: np.ndarray, outputs: int) -> None:
    """Raise ConfigError if a client's y (N, …) breaks a rule of the task."""
    task = task_of(config.train)
    try:
        task.refuse(y, outputs)
    except ValueError as error:
        raise ConfigError(
            f"train.task {config.train.task} takes {task.takes}, but the data of client {client} do not fit: "
            f"{' '.join(str(error).split())}; set another train.task (docs/tasks.md), or correct y"
        ) from error


def refuse_parts_without_classes(config: Config, *, has_labels: bool, tokens: bool) -> None:
    """Raise ConfigError for options needing classes if there are none, or channels if x are tokens.

    Args:
        config: the run's configuration.
        has_labels: whether y is one class per example.
        tokens: whether x are int64 tokens.
    """
    rule = config.asynchrony.rule
    requirements = (
        ("partition.kind", config.partition.kind, PARTITIONS.has(config.partition.kind, BY_CLASS), "iid"),
        ("scenario", config.scenario, SCENARIOS.has(config.scenario, BY_CLASS), "none"),
        ("asynchrony.rule", rule, SERVER_RULES.has(rule, TELLS_CLASSES), "fedbuff"),
    )
    for option, name, needs, alternative in requirements:
        if needs and not has_labels:
            raise ConfigError(
                f"{option} {name} needs data with a class per example, but y of these data (train.task "
                f"{config.train.task}) has none; set {option}={alternative}"
            )
    by_channel = config.scenario != "none" and not SCENARIOS.has(config.scenario, BY_CLASS)
    if tokens and by_channel and not SCENARIOS.is_own(config.scenario):
        raise ConfigError(
            f"scenario {config.scenario} changes channels, but the data are tokens (int64 x), which have "
            f"none; set scenario=none"
        )


def target_remarks(config: Config, windows: Windows) -> list[str]:
    """The task's remarks on the targets; ConfigError if a user's task fails at it."""
    with TASKS.explaining_errors(config.train.task):
        return [str(line) for line in task_of(config.train).remarks(windows.y, windows.classes)]
