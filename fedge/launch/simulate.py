"""Runs a study in this process: the same ServerApp logic and ClientApp as under `flwr run`, without Ray."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fedge.client_app import app as client_app
from fedge.client_app import choose_device
from fedge.config.option import ConfigError
from fedge.config.sections import fold_tables
from fedge.engine.federation import Federation
from fedge.engine.inprocess import InProcessGrid
from fedge.launch.preflight import check
from fedge.launch.project import flatten
from fedge.process.threads import available_cores
from fedge.run.prepare import Prepared
from fedge.run.run import IN_PROCESS, Outcome, run

if TYPE_CHECKING:
    from fedge.records.reader import RunData


def simulate(
    config: Mapping[str, Any] | None = None,
    *,
    num_supernodes: int = 9,
    workers: int | None = None,
    terminal: TextIO | None = None,
) -> "RunData":
    """Carry out one run on threads of this process, leave its run folder behind and read it.

    Args:
        config: options that differ from their defaults, flat (``{"train.lr": 0.1}``) or nested
            (``{"train": {"lr": 0.1}}``); see pyproject.toml for all of them.
        num_supernodes: number of clients.
        workers: clients that train at a time; by default as many as this process may use cores.
        terminal: where the progress lines go; standard output by default.

    Returns:
        The same as `fedge.load_run` of its folder, however the run ended: `status`, `exit_code`, `reason`,
        `folder`, tables as Polars frames, models.

    Raises:
        ConfigError: the run cannot work; nothing was started.
        RunFolderError: the folder cannot be read, as when the disk is gone.
    """
    flat = fold_tables(flatten(config or {}))
    federation = Federation(num_supernodes)
    if num_supernodes < 1:
        raise ConfigError(f"num_supernodes must be at least 1, but is {num_supernodes}; 9 suits HHAR")
    outcome = run_in_process(flat, federation, workers, terminal, prepared=check(flat, federation))
    if outcome.folder is None:
        raise ConfigError(outcome.reason)
    from fedge.records.reader import load_run  # Polars: a command that only runs need not load it

    return load_run(outcome.folder)


def run_in_process(
    run_config: Mapping[str, Any],
    federation: Federation,
    workers: int | None,
    terminal: TextIO | None,
    owns_process: bool = False,
    prepared: Prepared | None = None,
) -> Outcome:
    """Carry out a checked run on `workers` threads; `fedge.run.run` has the meaning of the last two."""
    choose_device(str(run_config.get("train.device", "auto")))  # refuses a GPU that is not there
    count = min(workers or available_cores(), federation.num_supernodes)

    def open_terminal(_: Path) -> TextIO:
        return terminal or sys.stdout or open(os.devnull, "w")

    with InProcessGrid(client_app, federation.num_supernodes, run_config, count) as grid:
        described = {**federation.describe(), "workers": count}
        return run(grid, run_config, IN_PROCESS, described, open_terminal, owns_process, prepared)
