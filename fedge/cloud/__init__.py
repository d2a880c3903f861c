"""The cloud step: one model per cluster, offered to its leaves.

`step` goes from leaf models to offers, `offers` mixes them, `control` is SCAFFOLD between cloud and leaves.

Imports only from below: `leaf` and what is under it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "offers": ["Offer", "Offers", "make_offers"],
        "step": ["CloudAggregator", "CloudStep"],
    },
)
