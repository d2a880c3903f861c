"""Output of a run's progress: plain lines, a live view below them on a terminal, or a bar in a notebook.

Imports only from below: `records` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "frame": ["Board"],
        "lines": ["Console", "final_table"],
        "live": ["LiveConsole"],
        "palette": ["colour", "dashes"],
        "terminal": ["open_console"],
    },
)
