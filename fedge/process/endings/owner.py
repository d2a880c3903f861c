"""Owner of a folder: the process that created it. If it was killed, the next process removes the folder.

For folders outside any run folder. Only folders of this account are removed, and only after their owner has
certainly ended.
"""

import json
import os
import shutil
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fedge.process.identity import has_ended, namespace, this_process

_OWNER = "process.json"


def note_owner(folder: Path) -> None:
    """Record this process as the owner of a folder.

    Raises:
        OSError: the file cannot be written.
    """
    (folder / _OWNER).write_text(json.dumps({**this_process(), "namespace": namespace()}), encoding="utf-8")


def remove_ownerless(folders: Iterable[Path]) -> None:
    """Remove folders of this account whose owner has ended; others, and those without an owner, stay."""
    if sys.platform == "win32":
        return
    for folder in folders:
        with suppress(OSError, ValueError, RecursionError):
            info = folder.lstat()
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
                continue
            owner = json.loads((folder / _OWNER).read_text(encoding="utf-8"))
            # in another container, process ids mean nothing here
            if isinstance(owner, dict) and owner.get("namespace") == namespace() and has_ended(owner):
                shutil.rmtree(folder, ignore_errors=True)
