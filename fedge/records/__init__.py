"""The run folder, written and read (contract C9).

`folder` locates it, `manifest` is its manifest, `catalog` all its columns, `recorder` the writer,
`message_log` the messages' times, `reader` the reader as frames and arrays, `status` a run's status, `lock`
its lock, `rows` a reader of damaged tables. `private` holds facts of this machine, and `export` makes a copy
without them. `device_tables` and `device_recorder` write the further tables of the virtual clock.

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
