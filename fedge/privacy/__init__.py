"""Differential privacy of clients: the mechanism, what it adds up to, and what it does not cover.

`mechanism` clips, averages and adds noise; docs/privacy.md says what is promised.

Imports only from below: `states`, `timing`, `metrics` and what is under them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "mechanism": ["clip_scale", "gaussian_multiplier", "next_clip_norm", "released_mean"],
    },
)
