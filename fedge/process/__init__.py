"""The processes of a run: their ends, logs, memory, threads and identity; hangs and leaks.

`exits` has exit codes and signals, `watchdog` ends a run in which nothing happens, `growth` sees leaks,
`identity` tells whether a process still lives, `versions` has those of all that results depend on, `capture`
is memray's, `client_app` has the memory that a node of a deployment reports, `escape` makes text from
elsewhere harmless, `collection` keeps the search for garbage from imported modules, `behind` does work while
its owner waits.

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
