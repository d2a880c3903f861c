"""Engines for clients: threads of this process, or Flower on Ray.

`inprocess` is Flower's Grid without Ray, on `workers`; `flower_engine` adapts Flower's own. `ray_workers`,
`worker_pool`, `dispatch` and `flower_process` are Fedge's changes to it, `other_machines` measures workers
elsewhere, `federation` has a run's requirements on the machine, and `capture` ends the captures of a profile.

Imports only from below: `records` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "federation": ["Federation"],
        "flower_engine": ["FlowerEngine"],
        "inprocess": ["InProcessGrid"],
    },
)
