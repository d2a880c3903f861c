"""Client side around training: privacy, and an answer in any case.

Imports only from below: `clustering` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "guarded_app": ["ClientError", "GuardedApp"],
        "privacy": ["private_state"],
        "together": ["train_together"],
    },
)
