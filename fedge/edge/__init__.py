"""Leaf servers in separate processes: orders from the cloud, and answers.

At the cloud, `port` handles a global round and `dispatch` one exchange. At a leaf server, `host` answers
orders, `order_execution` executes those of a run, and `leaf_bundles` serves several leaves in one process.
`remote_regions` (cloud) and `region` do the same for regions in separate processes. `store` keeps a leaf
server's state on disk. Inner room: `packets` defines the messages, which are sent over `fedge.link`.

Imports only from below: `rounds` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "engine": ["EdgeEngine"],
        "order_execution": ["Site"],
        "host": ["LeafHost"],
    },
)
