"""Runs in this process: the same ServerApp logic and ClientApp as under `flwr run`, without Ray."""

import copy
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import isroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy

from fedge.client_app import app as client_app
from fedge.config.flat import fold_tables
from fedge.config.registers.engines import IN_PROCESS
from fedge.config.registers.groupings import GATES, GROUPINGS, SIGNALS
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import (
    ALGORITHMS,
    CALLBACKS,
    CLOUD,
    DATASETS,
    MODELS,
    PARTITIONS,
    RULES,
    SCENARIOS,
    TRACKERS,
)
from fedge.config.registers.register import Register
from fedge.engine.federation import Federation
from fedge.engine.inprocess import InProcessGrid
from fedge.launch.client_threads import client_threads
from fedge.launch.preflight import check
from fedge.launch.projects.project import CLIENT_APP, flatten
from fedge.launch.run_device import settle_device
from fedge.process.forks import refuse_fork
from fedge.records.manifest import RunFolderError
from fedge.run.preparation.prepare import Prepared
from fedge.run.run import Outcome, run
from fedge.trackers.tracker import TrackedRun
from hhar.windows.window_file import Windows

if TYPE_CHECKING:
    from fedge.records.reading.reader import RunData


_CLIENTS = 9  # one per user of HHAR


def simulate(
    config: Mapping[str, Any] | None = None,
    *,
    num_supernodes: int | None = None,
    clients: int | None = None,
    model: Any = None,
    algorithm: Any = None,
    rule: Any = None,
    cloud_rule: Any = None,
    signal: Any = None,
    grouping: Any = None,
    gate: Any = None,
    partition: Any = None,
    scenario: Any = None,
    data: Any = None,
    tracker: Any = None,
    callbacks: Sequence[Any] = (),
    workers: int | None = None,
    terminal: TextIO | None = None,
) -> "RunData":
    """Carry out one run on threads of this process, and return its results.

    Args:
        config: options different from the defaults, flat (``{"train.lr": 0.1}``) or nested (``{"train":
            {"lr": 0.1}}``); see pyproject.toml for all of them.
        num_supernodes: number of clients; None for one per user, or nine (option `clients`).
        clients: the same; takes precedence.
        model: class of a network, or function returning one, in place of `train.model`; this and the
            following arguments may also be names (docs/extend.md).
        algorithm: subclass of `fedge.algorithm.Algorithm`, in place of `train.algorithm`.
        rule: subclass or object of Flower's Strategy, in place of `leaf.strategy`.
        cloud_rule: the same in place of `cloud.rule`.
        signal: function, in place of `cluster.signal`.
        grouping: function, in place of `cluster.method`.
        gate: function, in place of `gate.rule`.
        partition: function, in place of `partition.kind`.
        scenario: function, in place of `scenario`.
        data: `hhar.Windows`, or a function returning them, in place of `data.path`.
        tracker: object with methods `log` and `finish` like `fedge.trackers.Tracker`, or a class or function
            taking a `fedge.trackers.TrackedRun` and returning one, in place of `tracker`.
        callbacks: objects, classes or names, in place of `callbacks`; see `fedge.callbacks.Callback`.
        workers: clients in training at a time; None for one per usable core, or per GPU.
        terminal: stream for progress lines; None for standard output.

    Returns:
        The same as `fedge.load_run` of the run folder, however the run ended: `status`, `exit_code`,
            `reason`, `folder`, tables as Polars frames, models.

    Raises:
        ConfigError: the run cannot work, or this process is a fork of one that has carried out or read a run;
            nothing was started.
        RunFolderError: the run has failed, and its folder cannot be read, e.g. because the disk is gone.

    >>> import io, tempfile
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     config = {"num-server-rounds": 2, "train.local-epochs": 1, "report": False, "runs-dir": runs}
    ...     run = simulate(config, model="linear", data="digits", clients=6, terminal=io.StringIO())
    >>> run.status, len(run.rounds), run.clients.columns[:3]
    ('completed', 2, ['global_round', 'client', 'leaf'])
    """
    refuse_fork("simulate")
    data = _data_setting(data)
    _refuse_network(model)
    _refuse_odd_settings(config, workers, terminal)
    callback_parts = _callback_list(callbacks)
    parts = (
        (MODELS, model), (ALGORITHMS, algorithm), (RULES, _strategy_factory(rule)),
        (CLOUD, _strategy_factory(cloud_rule)), (SIGNALS, signal), (GROUPINGS, grouping), (GATES, gate),
        (PARTITIONS, partition), (SCENARIOS, scenario), (DATASETS, data),
        (TRACKERS, _tracker_factory(tracker)),
    )  # fmt: skip
    part_names = {register.option: register.given(part) for register, part in parts if part is not None}
    callback_names = [
        CALLBACKS.given(_callback_factory(part), n) for n, part in enumerate(callback_parts, start=1)
    ]
    if callback_names:
        part_names["callbacks"] = ",".join(callback_names)
    options = {key: _plain_value(value) for key, value in flatten(config or {}).items()}
    flat = fold_tables({**options, **part_names})
    count = _plain_value(num_supernodes if clients is None else clients)
    if count is not None:
        flat["clients"] = count
    federation = Federation(_CLIENTS, is_default=True)
    try:
        _refuse_model_of_this_process(flat, model)
        prepared = check(flat, federation)
        federation = replace(federation, num_supernodes=prepared.num_clients)
        outcome = run_in_process(flat, federation, _plain_value(workers), terminal, prepared=prepared)
    finally:
        for register, _ in parts:
            register.forget(str(part_names.get(register.option)))
        for name in callback_names:
            CALLBACKS.forget(name)
    assert outcome.folder is not None  # refusal of a prepared run raises
    from fedge.records.reading.reader import load_run  # loads Polars, which other commands do not need

    try:
        return load_run(outcome.folder)
    except RunFolderError as error:  # the caller did not choose this name
        if not outcome.reason:
            raise
        raise RunFolderError(f"the run has failed, and its folder is lost: {outcome.reason}") from error


def _plain_value(value: Any) -> Any:
    """A NumPy number as a Python number, a path as text; anything else unchanged."""
    if isinstance(value, Path):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _refuse_odd_settings(config: Any, workers: Any, terminal: Any) -> None:
    """Raise ConfigError for a configuration, number of workers or terminal of the wrong type."""
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(
            f'config must be a table of options, but is {shown(config)}; give {{"train.lr": 0.1}}'
        )
    if workers is not None and (type(_plain_value(workers)) is not int or workers < 1):
        raise ConfigError(
            f"workers must be a whole number of at least 1, but is {shown(workers)}; leave it out for one "
            "per core"
        )
    if terminal is not None and not callable(getattr(terminal, "write", None)):
        raise ConfigError(
            f"terminal must be a stream of text, but is {shown(terminal)}; leave it out for standard output"
        )


def _callback_list(callbacks: Any) -> list[Any]:
    """Callbacks as a list; a single name becomes a list of one, None an empty list.

    Raises:
        ConfigError: `callbacks` cannot be iterated over.
    """
    if isinstance(callbacks, str) or callbacks is None:
        return [callbacks] if callbacks else []
    try:
        return list(callbacks)
    except TypeError:
        raise ConfigError(
            f"callbacks must be a list of objects, classes or names, but is {shown(callbacks)}; give "
            f"callbacks=[…]"
        ) from None


def _data_setting(data: Any) -> Any:
    """A name or a function unchanged, a path as its text; windows as a function returning them."""
    data = _plain_value(data)
    if isinstance(data, Windows):
        dataset = partial(return_windows, data)
        dataset.said = "windows given from Python"  # type: ignore[attr-defined]
        return dataset
    if data is None or isinstance(data, str) or callable(data):
        return data
    raise ConfigError(
        f"data must be hhar.Windows, a function that returns them, or a name, but is of type "
        f"{type(data).__name__}; use fedge.from_pandas or fedge.from_images (docs/data.md)"
    )


class _StrategyCopies:
    """Factory of copies of a given strategy, one per server, each with its own state."""

    def __init__(self, strategy: Strategy) -> None:
        self.part = strategy
        self.__module__ = type(strategy).__module__
        self.__qualname__ = type(strategy).__qualname__

    def __call__(self, **settings: Any) -> Strategy:
        strategy = copy.deepcopy(self.part)
        for name, value in settings.items():  # Fedge selects the participants
            if hasattr(strategy, name):
                setattr(strategy, name, value)
        return strategy


def _strategy_factory(rule: Any) -> Any:
    """Factory of copies for a strategy object; a name, class or function unchanged."""
    return _StrategyCopies(rule) if isinstance(rule, Strategy) else rule


def _refuse_network(model: Any) -> None:
    """Raise ConfigError for a network instead of its factory, because all leaves would share it."""
    if hasattr(model, "state_dict") and not isinstance(model, type):
        raise ConfigError(
            f"model must be a class or a function that returns a network, but is a network of type "
            f"{type(model).__name__}; pass its class or a function (docs/extend.md)"
        )


def _refuse_model_of_this_process(run_config: Mapping[str, Any], model: Any) -> None:
    """Raise ConfigError if several processes are to train a model they cannot import."""
    if model is None or run_config.get("train.processes", 1) == 1 or MODELS.is_importable(model):
        return
    raise ConfigError(
        f"train.processes must be 1 for a model that only this process has, but {shown(model)} is an "
        f"object of this process; move it into a module, or set train.processes=1"
    )


class _NamedPart:
    """A given object, under the name of its class."""

    def __init__(self, part: Any) -> None:
        self.part = part
        self.__module__ = type(part).__module__
        self.__qualname__ = type(part).__qualname__


class _ObjectFactory(_NamedPart):
    """Factory returning the given object."""

    def __call__(self) -> Any:
        return self.part


def _callback_factory(callback: Any) -> Any:
    """Factory of a callback, from a name, a class, a function or an object."""
    return callback if isinstance(callback, str | type) or isroutine(callback) else _ObjectFactory(callback)


class _TrackerFactory(_NamedPart):
    """Factory returning the given tracker, after calling its method `begin`, if any, with the run."""

    def __call__(self, run: TrackedRun) -> Any:
        if hasattr(self.part, "begin"):
            self.part.begin(run)
        return self.part


def _tracker_factory(tracker: Any) -> Any:
    """Factory of a tracker, from a name, a class, a function or an object.

    Raises:
        ConfigError: `tracker` is none of these.
    """
    if isinstance(tracker, str | type) or isroutine(tracker) or tracker is None:
        return tracker
    if all(callable(getattr(tracker, name, None)) for name in ("log", "finish")):
        return _TrackerFactory(tracker)
    if callable(tracker):
        return tracker
    raise ConfigError(
        f"tracker must be a name, a class, a function, or an object with methods log and finish, but is "
        f"{shown(tracker)}; see docs/extend.md"
    )


def client_app_named(name: str) -> ClientApp:
    """A project's ClientApp from [tool.flwr.app.components].

    Raises:
        ConfigError: the import fails, or the object is not a ClientApp.
    """
    if name == CLIENT_APP:
        return client_app
    loaded = Register("clientapp", "fedge.clientapps").load(name)
    if not isinstance(loaded, ClientApp):
        raise ConfigError(
            f"clientapp must be a flwr.clientapp.ClientApp, but {name} is {shown(loaded)}; see docs/extend.md"
        )
    return loaded


def return_windows(windows: Windows) -> Windows:
    """The windows themselves; with `partial`, a data set function."""
    return windows


def run_in_process(
    run_config: Mapping[str, Any],
    federation: Federation,
    workers: int | None,
    terminal: TextIO | None,
    owns_process: bool = False,
    prepared: Prepared | None = None,
    client_app: ClientApp = client_app,
) -> Outcome:
    """Carry out a checked run on `workers` threads; `client_app` replies for every client.

    See `fedge.run.run` for `owns_process` and `prepared`.
    """
    device_config, prepared = settle_device(run_config, federation, workers, prepared)
    count, client_config = client_threads(device_config, workers, federation.num_supernodes)

    def open_terminal(_: Path) -> TextIO:
        return terminal if terminal is not None else sys.stdout or open(os.devnull, "w")

    with InProcessGrid(client_app, federation.num_supernodes, client_config, count) as grid:
        fields = {**federation.describe(), "workers": count}
        return run(grid, run_config, IN_PROCESS.name, fields, open_terminal, owns_process, prepared)
