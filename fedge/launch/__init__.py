"""Start of a run: checks before any worker starts, and the engines as seen from outside.

`preflight` checks a run, `simulate` starts one in this process, `deployed` one on a SuperLink; `command_line`
and `completion` are the parser's. Inner rooms: `projects` reads pyproject.toml and writes new ones,
`flower_runs` starts `flwr run` and SuperLinks, `nodes` are a deployment's clients, `leaf_servers` its
servers.

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
