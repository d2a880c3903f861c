"""Sweeps: many runs from one file, every combination of its axes × its seeds, in parallel and resumable.

`plan` reads the file, `run_states` finds the runs left to do, and `pool` carries them out; `ray_pool` does so
on a Ray cluster, and `slurm` writes a job array. `progress` estimates the time left, `study` stores the plan
in the sweep's folder, and `summary` compares the results. Instead of axes, a file may have a search: `search`
reads it, `draws` draws trials with Optuna, and `searching` carries them out. `command` is ``fedge sweep``,
`comparing` is ``fedge compare`` of a sweep.

Imports only from below: `launch` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "command": ["run_sweeps"],
        "plan": ["Sweep", "read_sweep"],
    },
)
