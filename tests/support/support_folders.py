"""Folders of what tests share, for processes that tests start: pytest has them from pyproject.toml."""

import os
from pathlib import Path

SUPPORT = Path(__file__).parent
FOLDERS = (SUPPORT, *sorted(path for path in SUPPORT.iterdir() if path.is_dir() and path.name[0] not in "._"))
PYTHONPATH = os.pathsep.join(map(str, (SUPPORT.parents[1], *FOLDERS)))
"""All of them behind the checkout's root."""
