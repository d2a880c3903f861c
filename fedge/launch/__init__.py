"""Start of a run: checks before any worker starts, and the engines as seen from outside.

`project` reads pyproject.toml, `packaged` has the built-in files, `new_project` writes a project, `preflight`
checks a run, `simulate` starts a run in this process, `flower` one under `flwr run`, and `ray_start` checks
the preconditions of Ray.

Imports only from below: `client_app`, `leaf_app`, `server_app` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "flower": ["run_on_flower"],
        "preflight": ["check"],
        "project": ["Project"],
        "simulate": ["run_in_process"],
    },
)
