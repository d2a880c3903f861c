"""The processes of a run: how they end, their logs, memory, threads and identity; what hangs or leaks.

`exits` has exit codes and signals, `watchdog` ends a run in which nothing happens, `growth` sees leaks,
`identity` tells whether a process still lives, `versions` what results depend on, `capture` is memray's,
`client_app` is what a node of a deployment says it holds, `escape` makes text from elsewhere harmless,
`collection` keeps the search for garbage from what is imported, `behind` does work while its owner waits.

Imports only from below: `config` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "behind": ["Behind"],
        "exits": ["Interrupted", "signals_as_exceptions"],
        "growth": ["GrowthWatch", "grows"],
        "identity": ["has_ended", "this_process"],
        "memory": ["MemoryWatch", "ProcessMemory"],
        "threads": ["available_cores", "in_threads"],
        "watchdog": ["StallError", "note_progress", "stall_limit_s"],
    },
)
