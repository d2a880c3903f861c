"""The folder that a node has while it runs, and those of nodes that were killed: the next start removes them.

Only directories that this account has made, and whose process has ended for certain.
"""

import json
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from fedge.process.identity import has_ended, this_process

_PREFIX = "fedge-node-"
_OWNER = "process.json"


def make_folder() -> Path:
    """Make a folder for this process, where temporary files are; those of nodes that are dead go."""
    _reap()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    (folder / _OWNER).write_text(json.dumps(this_process()))
    return folder


def _reap() -> None:
    """Remove the folders of this account's nodes whose processes have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, ValueError, RecursionError):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            process = json.loads((folder / _OWNER).read_text(encoding="utf-8"))
            if isinstance(process, dict) and has_ended(process):
                shutil.rmtree(folder, ignore_errors=True)
