"""The cloud step: one model per cluster, offered to its leaves.

`aggregator` is the cloud over a whole run, `step` goes from leaf models to offers in stages, `memory` is its
state between steps, `offers` mixes models, `control` is SCAFFOLD between cloud and leaves.

Imports only from below: `leaf` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "aggregator": ["CloudAggregator"],
        "offers": ["Offer", "Offers", "make_offers"],
        "step": ["CloudRound", "CloudStep"],
    },
)
