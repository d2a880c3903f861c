"""The run folder, written and read (contract C9).

`folder` is its place, `manifest` its manifest, `catalog` all its columns, `recorder` writes it, `message_log`
the messages' times, `reader` reads it as frames and arrays, `status` says how a run stands, `lock` who holds
it, `rows` reads tables that may be damaged, `private` what is this machine's alone, `export` makes a copy
without it. `device_tables` and `device_recorder` are what a run on the virtual clock leaves beside.

Imports only from below: `devices`, `edge` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "catalog": ["TABLES"],
        "columns": ["Column", "Table"],
        "folder": ["find_run"],
        "manifest": ["RunFolderError", "read_manifest"],
        "reader": ["RunData", "load_run"],
        "recorder": ["Recorder"],
        "status": ["read_status", "status_lines"],
    },
)
