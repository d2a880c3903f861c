"""From configuration to run folder, whatever engine drives the clients.

`prepare` works out what a run starts from, `opening` gives it its folder, `run` its surroundings; `build`
makes its parts, `announce` says and records what happens, `carry_out` has the steps. `ending` is how it ends,
`remarks` what is said then; `snapshot` is what is kept of a round, `resume` which run goes on and whether it
may.

Imports only from below: `callbacks`, `trackers`, `report` and what is under them.
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
