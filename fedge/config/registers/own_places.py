"""Per-user folders for files that outlive runs, by the XDG base directory specification."""

import os
from contextlib import suppress
from pathlib import Path

from fedge.config.registers.option import ConfigError


def own_home() -> Path | None:
    """Home folder of this account; None without one, as for an arbitrary uid in a container."""
    with suppress(RuntimeError):
        return Path.home()
    return None


def own_place(variable: str, *below: str) -> Path:
    """Folder named by an environment variable, if it is an absolute path, else a folder below the home.

    Args:
        variable: name of the variable, e.g. XDG_STATE_HOME.
        below: components of the folder's path below the home.

    Raises:
        ConfigError: the variable is not set, and there is no home folder.
    """
    configured, home = os.environ.get(variable, ""), own_home()
    if os.path.isabs(configured):
        return Path(configured)
    if home is None:
        raise ConfigError(
            f"account {os.getuid()} must have a home folder, but has none; set HOME or {variable} to a "
            f"folder that it can write to"
        )
    return home.joinpath(*below)
