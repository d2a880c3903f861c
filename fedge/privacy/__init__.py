"""Differential privacy of clients: the mechanism, what it adds up to, and what it does not cover.

`mechanism` clips, averages and adds noise, which `noise` draws, `account` adds up what was spent, `marks` are
those of what leaves clients, `coverage` says what is promised and what is not; docs/privacy.md says it at
length.

Imports only from below: `tasks`, `states`, `timing`, `metrics`, `native` and rooms below them.
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
