"""One edge server: requests to its clients, checks of replies, counting and combination.

`leaf` is the server, `models` its trained and served models, `counting` decides on replies, `selection` on
the clients that train, `drift` is its movement since the last cloud step. Inner room: `strategies` has the
checks of replies, their required number, and Flower's strategies that combine them.

Imports only from below: `client`, `clustering`, `methods` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "leaf": ["Leaf"],
        "strategies.quorum": ["needed_replies", "num_training"],
        "strategies.rules": ["make_strategy"],
    },
)
