"""Modules of the user in a process that outlives a run; each run imports them again, as files may change."""

import sys
from contextlib import suppress
from pathlib import Path

from fedge.config.registers.register import search_folders

_OURS = ("fedge", "hhar")
_INSTALLED = {"site-packages", "dist-packages"}


class OwnModules:
    """Modules of the user imported since this object was made, all for one run."""

    def __init__(self) -> None:
        """Start without a run; modules imported before stay for ever."""
        self._before = frozenset(sys.modules)
        self._run: object = None

    def begin(self, run: object) -> None:
        """Forget the modules unless they were imported for this run, so the next imports read their files."""
        if run != self._run:
            for name in self._names():
                sys.modules.pop(name, None)
        self._run = run

    def end(self) -> None:
        """End the run: the next one begins with new modules, even the same one."""
        self._run = None

    def _names(self) -> list[str]:
        """Names of modules imported from the folders searched for the user's code."""
        folders = [Path(folder) for folder in search_folders()]
        with suppress(OSError):  # the working directory was removed
            folders.append(Path.cwd())
        return [
            name
            for name, module in list(sys.modules.items())
            if name not in self._before
            and name.partition(".")[0] not in _OURS
            and (file := getattr(module, "__file__", None))
            and not _INSTALLED & set(Path(file).parts)
            and any(Path(file).resolve().is_relative_to(folder) for folder in folders)
        ]
