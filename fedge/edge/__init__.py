"""Leaf servers as processes of their own: what the cloud asks of them, and how they answer.

`port` is the cloud's side of a global round, `host` a leaf server's; `orders` is what passes between them,
over `fedge.link`. What a leaf server keeps of its own, `store` puts on its disk.

Imports only from below: `rounds` and what is under it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "engine": ["EdgeEngine"],
        "host": ["LeafHost", "Site"],
    },
)
