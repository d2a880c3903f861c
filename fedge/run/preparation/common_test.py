"""The common test set of a run: its clients' test windows, or a file at the server."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedge.config.common_test import OF_CLIENTS
from fedge.config.config import Config
from fedge.config.registers.option import ConfigError, shown
from fedge.data.prepared import DataShape, all_windows, as_float, client_in, load_source
from fedge.data.scaling import Scale, apply_scale
from fedge.tasks.configured import task_of
from hhar.windows.window_file import Windows

if TYPE_CHECKING:
    from fedge.rounds.measurements.common_test import Examples

_PART = 4096  # least number of windows in memory at a time
_TEST = "test"


def refuse_other_common_test(
    config: Config, shape: DataShape, classes: Sequence[str], channels: Sequence[str], *, owners: bool = False
) -> None:
    """Raise ConfigError if the common test set cannot be read or does not fit the run.

    Args:
        config: the run's configuration.
        shape: sizes of the run's data.
        classes, channels: their names in the run's data, in order.
        owners: whether clients own their windows, which the server never sees.
    """
    name = config.evaluate.common
    if name == OF_CLIENTS and owners:
        raise ConfigError(
            "evaluate.common test needs clients' test windows at the server, but clients own them; name a "
            "window file at the server"
        )
    if name in ("", OF_CLIENTS):
        return
    windows = _load(config)
    _examples_in(windows, config, shape)
    for noun, of_run, of_file in (
        ("classes", tuple(classes), windows.classes), ("channels", tuple(channels), windows.channels)
    ):  # fmt: skip
        if of_run != of_file:
            raise ConfigError(
                f"evaluate.common must have the {noun} of data.path, {shown(of_run)}, in this order, but "
                f"{shown(name)} has {shown(of_file)}; prepare it like data.path"
            )


def examples_of_file(config: Config, shape: DataShape) -> "Examples":
    """x (N, …) and y (N, …) of the window file named by `evaluate.common`, scaled like clients' windows.

    Args:
        config: the run's configuration.
        shape: sizes of the run's data, with their scale.

    Raises:
        ConfigError: the file cannot be read, or its windows do not fit.
    """
    return _examples_in(_load(config), config, shape)


def _load(config: Config) -> Windows:
    """The windows of the file named by `evaluate.common`; ConfigError if it cannot be read."""
    path = config.evaluate.common
    try:
        return load_source(replace(config, data=replace(config.data, path=path), scenario="none"), 1)[0]
    except ConfigError as error:
        raise ConfigError(str(error).replace("data.path", "evaluate.common", 1)) from error


def _examples_in(windows: Windows, config: Config, shape: DataShape) -> "Examples":
    """x (N, …) and y (N, …) of a file's test windows, scaled; see `examples_of_file`."""
    name = config.evaluate.common
    if windows.x.shape[1:] != shape.input_shape or len(windows.classes) != shape.classes:
        raise ConfigError(
            f"evaluate.common must hold windows {shape.input_shape} of {shape.classes} classes, but "
            f"{shown(name)} has {windows.x.shape[1:]} of {len(windows.classes)}; prepare it like data.path"
        )
    rows = np.arange(len(windows.y)) if windows.part is None else np.flatnonzero(windows.part == _TEST)
    x, y = as_float(windows.x[rows]), windows.y[rows]
    try:
        task_of(config.train).refuse(y, shape.classes)
    except ValueError as error:
        raise ConfigError(
            f"evaluate.common must fit train.task {config.train.task}, but in {shown(name)}: "
            f"{' '.join(str(error).split())}; correct y"
        ) from error
    if shape.mean:
        x = x.copy()
        apply_scale(x, Scale(shape.mean, shape.std))
    return x, y


def parts_of_file(config: Config, shape: DataShape) -> "Callable[[int], Iterator[Examples]]":
    """Function: global round → the file's windows, the same in every round; see `examples_of_file`."""
    x, y = examples_of_file(config, shape)

    def parts(_: int) -> "Iterator[Examples]":
        yield x, y

    return parts


def parts_of_clients(
    folder: Path, clients: int, unseen: Collection[int]
) -> "Callable[[int], Iterator[Examples]]":
    """Function: global round → test windows of all training clients, in order, a few clients at a time.

    Args:
        folder: folder of the clients' windows.
        clients: number of clients.
        unseen: unseen clients, whose windows are left out.
    """

    def parts(global_round: int) -> "Iterator[Examples]":
        windows, waiting, count = all_windows(folder), [], 0
        for client in range(clients):
            x, y = client_in(windows, client, global_round).test
            if client not in unseen and len(y):
                waiting.append((x, y))
                count += len(y)
            if count >= _PART:
                yield _concatenate(waiting)
                waiting, count = [], 0
        if waiting:
            yield _concatenate(waiting)

    return parts


def _concatenate(parts: "Sequence[Examples]") -> "Examples":
    """Windows of several clients, concatenated."""
    xs, ys = zip(*parts, strict=True)
    return np.concatenate(xs), np.concatenate(ys)
