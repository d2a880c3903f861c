"""A synthetic HHAR: the structure of the real data set, with physics for every activity and device.

`motion` models people's motion, `devices` the readings of their devices, `generate` makes recordings and
windows, `raw_csv` writes the same data as files in UCI's layout.

Imports only `hhar.windows` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "generate": ["recordings_by_device", "synthetic_windows"],
        "raw_csv": ["write_raw"],
    },
)
