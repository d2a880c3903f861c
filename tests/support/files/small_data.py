"""A small window file, for whole runs whose data do not matter: synthetic data cost a second each time."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import save_windows


@cache
def nine_users():
    """The path of 972 windows of 6 channels, 64 samples; made once, removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="fedge-test-data-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    windows = synthetic_windows(9, windows_per_bout=1, rate_hz=25.0)
    return str(save_windows(Path(folder) / "nine.npz", windows))
