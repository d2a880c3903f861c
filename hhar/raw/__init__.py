"""The raw HHAR data set: downloaded, unpacked, parsed and prepared as a window file.

`download` fetches UCI's archive, `unpack` extracts its files, `parse` reads them in bounded memory, `prepare`
turns a folder of them into windows.

Imports only `hhar.windows` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "download": ["UCI_URL", "check_url"],
    },
)
