"""A project in a folder without write access, e.g. on a volume mounted read-only.

`flwr run` writes into the submitted project: a folder for credentials, and in newer versions changes to its
pyproject.toml. So it gets a copy of the files for the SuperLink.
"""

import os
import shutil
from pathlib import Path

from fedge.config.registers.option import ConfigError

_SENT = (".py", ".toml", ".md")  # files in a bundle of Flower 1.25 to 1.42
_WRITTEN = (".", ".flwr", ".flwr/.credentials", "pyproject.toml")
_PASSED_OVER = frozenset({".flwr", ".git", ".venv", "__pycache__"})


def writable_project(folder: Path, scratch: Path) -> Path:
    """The project's folder; or, if Flower cannot write there, a copy of the files to submit.

    Args:
        folder: the project's folder.
        scratch: an empty folder for the copy.

    Raises:
        ConfigError: a file of the project cannot be read.
    """
    to_write = [folder / name for name in _WRITTEN if (folder / name).exists()]
    if all(os.access(path, os.W_OK) for path in to_write):
        return folder
    copy = scratch / "app"
    try:
        _copy(folder, copy)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(
            f"files of a project must be readable, but {error.filename or folder}: {reason}; change that"
        ) from error
    return copy


def _copy(folder: Path, copy: Path) -> None:
    """Copy the files submitted by Flower, and its exclusion lists; raises OSError."""
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if name not in _PASSED_OVER]
        target = copy / Path(parent).relative_to(folder)
        for name in names:
            if name == ".gitignore" or Path(name).suffix in _SENT:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(parent, name), target / name)  # without permissions: Flower writes here


def _raise(error: OSError) -> None:
    raise error
