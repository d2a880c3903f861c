"""A run, from its configuration to its run folder, on any engine.

`prepare` reads the configuration and loads the data, `opening` opens the run folder, and `run` sets up
console, log and tracker. `build` constructs the parts, `carry_out` executes the steps, and `announce` prints
and records events. `snapshot` writes checkpoints; `resume` finds the run to resume and checks it. `ending`
ends the run, with the closing notes of `remarks`.

Imports only from below: `callbacks`, `trackers`, `report` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "ending": ["Outcome"],
        "prepare": ["Prepared"],
        "remarks": ["Remarks"],
        "resume": ["Resumption", "open_resumption"],
    },
)
