"""Recordings cut into windows, and window files: written, read, checked, thinned, described.

`recordings` holds one user's samples, `sessions` splits them into bouts and uninterrupted segments, `cut`
makes windows of them, `window_file` is the file format read by runs, `thin` makes a file smaller, `join`
combines several, `info` describes the content, `rounding` finds numbers too coarse in float32.

Imports only `hhar.errors`, `hhar.facts`, `hhar.npz` and `hhar.progress`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "cut": ["WindowBuilder", "WindowSpec", "build_windows"],
        "info": ["describe_file"],
        "recordings": ["Recording"],
        "window_file": [
            "WindowFileError",
            "Windows",
            "fingerprint",
            "fingerprint_windows",
            "load_windows",
            "save_windows",
        ],
    },
)
