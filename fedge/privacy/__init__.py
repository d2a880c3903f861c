"""Differential privacy of clients: the mechanism, its cost, and quantities it does not protect.

`mechanism` clips, averages and adds noise, drawn by `noise`; `account` adds up the cost, `marks` classifies
the quantities sent by clients, `coverage` states the guarantee and its limits; docs/privacy.md explains them.

Imports only from below: `compression`, `tasks`, `states`, `timing`, `metrics`, `native` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "account": ["Account"],
        "coverage": ["unprotected_quantities"],
        "marks": ["Mark", "Quantity"],
        "mechanism": ["clip_scale", "gaussian_multiplier", "next_clip_norm", "released_mean"],
    },
)
