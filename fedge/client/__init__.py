"""What a client does around training: its control variate, privacy, an answer whatever happens.

Imports only from below: `exchange`, `inference` and what is under them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "controls": ["load_control", "save_control"],
        "guarded_app": ["ClientError", "GuardedApp"],
        "privacy": ["private_state"],
    },
)
