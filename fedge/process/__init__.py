"""Processes of a run: exit codes, logs, memory, threads and identity; detection of stalls and leaks.

`identity` checks whether a process is alive, `versions` lists the versions behind results, `capture` records
with memray, `client_app` reports the memory of a deployment's node, `escape` makes foreign text harmless,
`collection` keeps imported modules out of garbage collection, `background_jobs` runs work in the background,
and `forks` refuses forks that would hang. Inner rooms: `endings` has exit codes, signals and the end of a
stalled run, `resources` cores, memory and leaks.

Imports only from below: `config` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "background_jobs": ["BackgroundJob"],
        "endings.exits": ["Interrupted", "signals_as_exceptions"],
        "resources.growth": ["GrowthWatch", "grows"],
        "identity": ["has_ended", "this_process"],
        "resources.memory": ["MemoryWatch", "ProcessMemory"],
        "resources.threads": ["available_cores", "in_threads"],
        "endings.watchdog": ["StallError", "note_progress", "stall_limit_s"],
    },
)
