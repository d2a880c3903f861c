"""Start of a run: checks before any worker starts, then a run on one of the engines.

`preflight` checks a run, `simulate` carries one out in this process, and `deployed` one on a SuperLink;
`command_line` and `completion` belong to the parser. Inner rooms: `projects` reads and creates projects,
`flower_runs` starts `flwr run` and SuperLinks, `nodes` has a deployment's clients, and `leaf_servers` its
leaf servers.

Imports only from below: `client_app`, `leaf_app`, `server_app` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "flower_runs.flower": ["run_on_flower"],
        "preflight": ["check"],
        "projects.project": ["Project"],
        "simulate": ["run_in_process"],
    },
)
