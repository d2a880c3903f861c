"""Leaf servers as processes of their own: the cloud's orders, and their answers.

`port` is the cloud's side of a global round and `dispatch` of one exchange, `host` a leaf server's; `orders`
are the messages between them, over `fedge.link`. `bundles` joins those of leaf servers of one process, which
`together` carries out. `away` and `region` are the same of regions that are processes, too. `store` puts a
leaf server's own state on its disk.

Imports only from below: `rounds` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "engine": ["EdgeEngine"],
        "host": ["LeafHost", "Site"],
    },
)
