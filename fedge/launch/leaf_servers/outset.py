"""A leaf server before it serves: its folder, its first contact with the cloud, and lines on the terminal."""

import argparse
from pathlib import Path

from fedge.config.registers.option import ConfigError
from fedge.link.certificates import AUTHORITY, CLOUD
from fedge.link.reach import refuse_other_authority


def say(line: str) -> None:
    """Print a line on the link to the cloud."""
    print(f"fedge: {line}", flush=True)


def make_folder(folder: Path) -> None:
    """Make the folder of a leaf server's state.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--folder must be writable, but {error.filename}: {error.strerror or error}; choose another"
        ) from error


def refuse_other_cloud(options: argparse.Namespace) -> None:
    """Raise ConfigError where --cloud is no address, or the server there is no cloud of this authority.

    A cloud that is not there yet is waited for.
    """
    refuse_other_authority("--cloud", options.cloud, options.certs / f"{AUTHORITY}.crt", CLOUD)
