"""Client side around training: privacy, memory, and a guaranteed reply or error.

Imports only from below: `clustering` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "guarded_app": ["ClientError", "GuardedApp"],
        "privacy": ["private_state"],
        "process_team": ["train_together"],
    },
)
