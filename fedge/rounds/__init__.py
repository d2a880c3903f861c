"""One global round: leaf rounds, cloud step, gate, evaluation, and the rows that come of it.

`strategy` is its order as a Flower Strategy, `evaluation` asks clients, `book` gathers, `results` are the
rows.

Imports only from below: `serving` and what is under it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "results": ["ClientResult", "LeafResult", "RoundResult"],
        "strategy": ["HierarchicalStrategy"],
    },
)
