"""Data sets for users: sensor recordings, frames and images, as windows (docs/data.md).

One module per data set: its card (description, owner, licence, source) and how its files are read. All sensor
recordings take one path, `hhar.windows.cut`: recordings → sessions → resampling within gaps → windows.
`catalog` lists them, `fetch` downloads, `archives` unpacks, `tables` reads columns of text files, `pickled`
reads arrays of pickles without running them. `images` turns pictures into windows; `frames` turns frames of
pandas or Polars into windows, reading their `columns` one by one; `command` is ``fedge datasets``.

Imports only from below: `privacy`, `states`, `timing`, `metrics` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "catalog": ["NAMES", "card", "prepare"],
        "fetch": ["download"],
        "frames": ["from_pandas"],
        "images": ["from_images", "from_partitions"],
    },
)
