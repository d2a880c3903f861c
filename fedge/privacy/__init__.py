"""Differential privacy of clients: the mechanism, its cost, and quantities outside its protection.

`mechanism` clips, averages and adds noise, drawn by `noise`; `account` sums the cost, `marks` classify
quantities leaving clients, `coverage` states the guarantee and its limits; docs/privacy.md has them at
length.

Imports only from below: `compression`, `tasks`, `states`, `timing`, `metrics`, `native` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "account": ["Account"],
        "coverage": ["not_covered"],
        "marks": ["Mark", "Quantity"],
        "mechanism": ["clip_scale", "gaussian_multiplier", "next_clip_norm", "released_mean"],
    },
)
