"""``fedge doctor``: the abilities of this machine, environment and project for a run (docs/doctor.md).

`machine` and `gpus` describe the machine, `client_memory` measures a client of the run in a process of its
own, `shares` says how many fit at a time, `findings` are good news and bad, `command` prints it.

Imports only from below: `launch` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={"client_memory": ["ClientMemory", "measured"], "shares": ["Shares", "shares_of"]},
)
