"""HHAR (Stisen et al., SenSys 2015) as window files: download, prepare, inspect, or synthesize.

Everything that follows works on `Windows`, from a real download or from the synthetic set alike.
"""

from hhar.errors import HharError
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import (
    WindowFileError,
    Windows,
    fingerprint,
    fingerprint_windows,
    load_windows,
    save_windows,
)

__all__ = [
    "HharError",
    "WindowFileError",
    "Windows",
    "fingerprint",
    "fingerprint_windows",
    "load_windows",
    "save_windows",
    "synthetic_windows",
]
