"""The run folder, written and read (contract C9).

`folder` locates it, `manifest` is its manifest, `recorder` the writer, `device_recorder` that of the virtual
clock, `message_log` the messages' times, `lock` its lock. `private_file` holds facts of this machine, and
`export` makes a copy without them. Inner rooms: `tables` has all columns, `reading` frames, arrays and a
run's status.

Imports only from below: `devices`, `edge` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "tables.catalog": ["TABLES"],
        "tables.columns": ["Column", "Table"],
        "folder": ["find_run"],
        "manifest": ["RunFolderError", "read_manifest"],
        "reading.reader": ["RunData", "load_run"],
        "recorder": ["Recorder"],
        "reading.status": ["read_status", "status_lines"],
    },
)
