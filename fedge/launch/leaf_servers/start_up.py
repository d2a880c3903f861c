"""Common steps of a leaf server's process: folder, log, first contact with the cloud, end."""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import add_search_folders
from fedge.launch.own_folder import exclusive_folder
from fedge.link.certificates import AUTHORITY, CLOUD
from fedge.link.dial import Refused
from fedge.link.reach import refuse_other_authority
from fedge.process.endings import exits
from fedge.process.logs import log_to, stop_logging_to

FOR_EVER_S = 1e9


def say(line: str) -> None:
    """Print a line about the link to the cloud."""
    print(f"fedge: {line}", flush=True)


def make_folder(folder: Path) -> None:
    """Create the folder for a leaf server's state.

    Raises:
        ConfigError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--folder must be writable, but {error.filename}: {error.strerror or error}; choose another"
        ) from error


def refuse_other_cloud(options: argparse.Namespace) -> None:
    """Raise ConfigError if --cloud is not an address, or the server there is not a cloud of this authority.

    A cloud that cannot be reached yet is waited for.
    """
    refuse_other_authority("--cloud", options.cloud, options.certs / f"{AUTHORITY}.crt", CLOUD)


def serve_runs(
    options: argparse.Namespace,
    folder: Path,
    name: str,
    serve_run: Callable[[], bool],
    close: Callable[[], None],
) -> int:
    """Serve run after run, or only one with ``--once``; returns the exit code.

    Args:
        options: options of the command.
        folder: folder of the process.
        name: name of the process, for the terminal.
        serve_run: serves one run; returns whether the cloud refused it.
        close: releases everything; called before the log is closed.

    Raises:
        ConfigError: an option is unusable.
    """
    refuse_other_cloud(options)
    make_folder(folder)
    add_search_folders(os.getcwd())  # custom parts of a run are imported from here
    with exclusive_folder(folder, "leaf server"):
        handler = log_to(folder / "leaf.log")
        print(f"{name} connects to {options.cloud}; its folder is {folder}", flush=True)
        try:
            with exits.signals_as_exceptions(exits.LEAVE_S) if options.owns_process else nullcontext():
                is_refused = serve_run()
                while not options.once:
                    is_refused = serve_run()
                return exits.FAILED if is_refused else 0
        except Refused as error:
            print(f"fedge: {error}", file=sys.stderr, flush=True)
            return exits.FAILED
        finally:
            close()
            stop_logging_to(handler)
