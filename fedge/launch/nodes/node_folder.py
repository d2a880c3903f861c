"""Temporary folder of a running node, and removal of the folders of killed nodes at the next start.

Only directories of this account are removed, and only after their process has certainly ended.
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


def make_node_folder() -> Path:
    """Create a temporary folder for this process, after removing those of dead nodes."""
    _reap()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    (folder / _OWNER).write_text(json.dumps(this_process()))
    return folder


def _reap() -> None:
    """Remove folders of this account's nodes whose processes have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, ValueError, RecursionError):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            process = json.loads((folder / _OWNER).read_text(encoding="utf-8"))
            if isinstance(process, dict) and has_ended(process):
                shutil.rmtree(folder, ignore_errors=True)
