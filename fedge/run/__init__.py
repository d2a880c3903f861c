"""From configuration to run folder, on any engine.

`prepare` determines a run's data and parts, `opening` its folder, `run` its surroundings; `build` makes its
parts, `announce` prints and records events, `carry_out` has the steps. `ending` ends the run, `remarks` are
its final notes; `snapshot` saves a round, `resume` finds the run to resume and checks it.

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
