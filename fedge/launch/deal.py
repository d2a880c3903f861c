"""`fedge deal`: a data set split into one folder per client, for the machines of a deployment."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.launch.command_line import Parser, refuse_option_as_place
from fedge.launch.projects.project import Project
from fedge.process.durable import removed_on_failure
from hhar.quantity import quantity


def add_deal(commands: Any) -> None:
    """Add ``fedge deal``."""
    deal = commands.add_parser(
        "deal", help="deal a data set into a folder per client, for SuperNodes on separate machines"
    )
    assert isinstance(deal, Parser)
    deal.add_argument("folder", type=Path, help="new folder for client-0, client-1, …")
    deal.add_argument(
        "--app", default=".", help="project folder, with or without pyproject.toml (default: .)"
    )
    deal.add_argument("--clients", type=int, metavar="N", help="number of clients (default: option clients)")
    deal.add_argument(
        "-c", "--run-config", action="append", default=[], metavar="OVERRIDE",
        help="as for the run: seed, data, partition, hierarchy and scenario are used",
    )  # fmt: skip
    deal.set_defaults(command=_deal, needs_room=True)


def _deal(options: argparse.Namespace) -> int:
    """Carry out ``fedge deal``."""
    refuse_option_as_place(str(options.folder), "the folder")
    run_config = Project(Path(options.app)).run_config(options.run_config)
    if options.clients is not None:
        run_config = {**run_config, "clients": options.clients}
    for line in deal_into(options.folder, run_config):
        print(line)
    return 0


def deal_into(folder: Path, run_config: Mapping[str, Any]) -> list[str]:
    """Write a folder for each client of a run; returns lines to print.

    Args:
        folder: folder to create; it must not exist.
        run_config: the run's options, flat.

    Raises:
        ConfigError: clients, data and configuration do not fit together, or the folder cannot be created.
    """
    from fedge.data.own_windows import (
        share_of,
        write_share,
    )  # imported late: shells run completion at every keystroke
    from fedge.run.preparation.prepare import deal_data, prepare_config

    prepared = prepare_config(run_config)
    config, clients = prepared.config, prepared.config.clients
    if not isinstance(clients, int):
        raise ConfigError(
            f"clients must be the number of SuperNodes to deal to, but is {clients}; add --clients 9"
        )
    deal = deal_data(config, prepared.seed, clients, None)
    source = Path(deal.source.name).name
    try:
        folder.mkdir(parents=True)
        with removed_on_failure(folder):
            for client in range(clients):
                share = share_of(deal.windows, deal.partition, client, source, deal.source.synthetic)
                write_share(folder / f"client-{client}", share)
    except OSError as error:
        raise ConfigError(
            f"the folder must be new and writable, but {error.filename or folder}: "
            f"{error.strerror or error}; choose another"
        ) from error
    return [
        f"{quantity(len(deal.windows.y), 'window')} of {deal.source.name} dealt to "
        f"{quantity(clients, 'client')}, seed {prepared.seed} (from {prepared.seed_source})",
        f"copy each client's folder to its machine, and start there, with its number: fedge node 0 --of "
        f"{clients} --superlink HOST:PORT --data-folder client-0",
        f"the server does not need the data: start the run with the same seed and -c clients={clients}",
    ]
