"""One global round: leaf rounds, cloud step, gate, evaluation, and the resulting rows.

`strategy` is its order. `lines` are models to train, `training` the leaf rounds, `meeting` the cloud step,
`evaluation` asks clients, `gates` decide, `served_models` fine-tunes and measures. Clients' work is asked of
leaf servers, through a `port`; where they are a part of this process (`routed`), all messages go through
`transport`. Inner room: `measurements` gathers numbers and makes rows of them.

Imports only from below: `serving` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "port": ["LeafPort"],
        "measurements.results": ["ClientResult", "LeafResult", "RoundResult"],
        "strategy": ["HierarchicalStrategy"],
        "task": ["RunTask"],
        "transport": ["Facilities", "Transport"],
    },
)
