"""A leaf (edge) server: selects clients, checks their replies, and combines the models.

`leaf` is the server, `models` its trained and served models, `selection` chooses the training clients,
`counting` accepts or refuses their replies, `drift` is the leaf's movement since the last cloud step. Inner
room: `strategies` has the checks of replies, the required number of replies, and Flower's strategies.

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
