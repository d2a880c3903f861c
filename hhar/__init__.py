"""HHAR (Stisen et al., SenSys 2015) as window files: download, prepare, inspect or synthesize.

All other code works on `Windows`, whether they come from the real download or from the synthetic set. Rooms:
`raw`, the data set as UCI distributes it; `synthetic`, a synthetic copy of it; `windows`, the common format.
All rooms use `errors`, `facts` (of HHAR), `npz` (arrays without pickles) and `progress`; `cli` is the
command.

Imports nothing of Fedge.
"""

from typing import TYPE_CHECKING

import lazy_loader as lazy

if TYPE_CHECKING:
    from hhar.errors import HharError as HharError
    from hhar.synthetic.generate import synthetic_windows as synthetic_windows
    from hhar.windows.window_file import (
        WindowFileError as WindowFileError,
    )
    from hhar.windows.window_file import (
        Windows as Windows,
    )
    from hhar.windows.window_file import (
        fingerprint as fingerprint,
    )
    from hhar.windows.window_file import (
        fingerprint_windows as fingerprint_windows,
    )
    from hhar.windows.window_file import (
        load_windows as load_windows,
    )
    from hhar.windows.window_file import (
        save_windows as save_windows,
    )

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "errors": ["HharError"],
        "synthetic.generate": ["synthetic_windows"],
        "windows.window_file": [
            "WindowFileError",
            "Windows",
            "fingerprint",
            "fingerprint_windows",
            "load_windows",
            "save_windows",
        ],
    },
)
