"""A run, from its configuration to its run folder, on any engine.

`run` sets up console, log and tracker. `build` constructs the parts, `carry_out` executes the steps, and
`announce` prints and records events. `snapshot` writes checkpoints; `ending` ends the run, with the closing
notes from `remarks`. Inner room: `preparation` reads the configuration, loads the data and opens the run
folder, or finds the run to resume and checks it.

Imports only from below: `callbacks`, `trackers`, `report` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "ending": ["Outcome"],
        "preparation.prepare": ["Prepared"],
        "remarks": ["Remarks"],
        "preparation.resume": ["Resumption", "open_resumption"],
    },
)
