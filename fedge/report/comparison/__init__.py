"""Several runs side by side: groups of runs differing only in seed, means and intervals, targets, yardsticks.

Part of the room `fedge.report`, with the same permitted imports.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "finals": ["csv_cells"],
        "groups": ["Group"],
        "statistics": ["Estimate", "estimate", "paired_difference"],
        "sweep_page": ["Comparison"],
        "targets": ["megabytes"],
        "yardsticks": ["Yardsticks"],
    },
)
