"""Folders of this account for files that outlive runs, by the XDG base directory specification."""

import os
from contextlib import suppress
from pathlib import Path

from fedge.config.registers.option import ConfigError


def own_home() -> Path | None:
    """Home folder of this account; None if it has none, as a container's account with any number."""
    with suppress(RuntimeError):
        return Path.home()
    return None


def own_place(variable: str, *below: str) -> Path:
    """Folder named by an environment variable, if it is an absolute path, else a folder below the home.

    Args:
        variable: name of the variable, e.g. XDG_STATE_HOME.
        below: names of the folder below the home, and of its parents.

    Raises:
        ConfigError: neither the variable nor a home is there.
    """
    named, home = os.environ.get(variable, ""), own_home()
    if os.path.isabs(named):
        return Path(named)
    if home is None:
        raise ConfigError(
            f"account {os.getuid()} must have a home folder, but has none; set HOME or {variable} to a "
            f"folder that it can write to"
        )
    return home.joinpath(*below)
