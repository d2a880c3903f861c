"""One edge server: requests to its clients, checks of replies, counting and combination.

`leaf` is the server, `grid` its clients, `models` its trained and served models, `aggregation` the children's
contributions to a server, `rules` are Flower's strategies for it, `private_mean` the one with differential
privacy, `checks` and `counting` decide on replies, `quorum` on their required number, `drift` is its movement
since the last cloud step.

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
