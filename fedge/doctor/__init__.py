"""``fedge doctor``: can this machine, environment and project carry out a run? (docs/doctor.md)

`gpus` describes the machine's GPUs, `client_memory` measures one of the run's clients in a separate process,
`shares` computes how many clients fit at a time, `findings` collects problems and confirmations, and
`command` prints them.

Imports only from below: `launch` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={"client_memory": ["ClientMemory", "measure_client"], "shares": ["Shares", "shares_of"]},
)
