"""The raw HHAR data set: downloaded, unpacked, parsed, prepared as a window file.

`download` fetches UCI's archive, `unpack` takes its files out, `parse` reads them in bounded memory,
`prepare` does the whole way.

Imports only `hhar.windows` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "download": ["UCI_URL", "check_url"],
    },
)
