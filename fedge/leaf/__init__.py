"""One edge server: how it asks its clients, checks their replies, counts and combines them.

`leaf` is the server, `grid` the clients that it sees, `models` those that it trains and serves, `aggregation`
the part that children bring to a server, `rules` are Flower's strategies for it, `private_mean` the one with
differential privacy, `checks` and `counting` say which replies count, `quorum` how many it needs, `drift` how
far it has moved since the last cloud step.

Imports only from below: `client`, `clustering`, `methods` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "leaf": ["Leaf"],
        "quorum": ["needed_replies", "num_training"],
        "rules": ["make_strategy"],
    },
)
