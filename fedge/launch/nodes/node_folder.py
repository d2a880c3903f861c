"""Temporary folder of a running node, and removal of the folders of killed nodes at the next start."""

import tempfile
from pathlib import Path

from fedge.process.endings.owner import note_owner, remove_ownerless

_PREFIX = "fedge-node-"


def make_node_folder() -> Path:
    """Create a temporary folder for this process, after removing folders of dead nodes."""
    remove_ownerless(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    note_owner(folder)
    return folder
