"""Many runs from one file: every combination of its axes × its seeds, several at a time, to be gone on with.

`plan` reads the file, `standing` finds the runs left to do, `pool` carries them out, `ray_pool` does on a
cluster, `slurm` writes an array of jobs for it, `progress` says how far it is, `study` keeps the plan in the
sweep's folder, `summary` compares the results. `search` reads a search in place of axes, `draws` draws its
trials by Optuna, `searching` carries them out. `command` is ``fedge sweep``, `comparing` is ``fedge compare``
of a sweep.

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
