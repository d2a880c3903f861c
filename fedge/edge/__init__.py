"""Leaf servers as processes of their own: the cloud's orders, and their answers.

`port` is the cloud's side of a global round and `dispatch` of one exchange; `host` is a leaf server's side of
its link, `at_work` its work in one run, `together` that of several in one process. `away` and `region` are
the same of regions that are processes, too. `store` puts a leaf server's own state on its disk. Inner room:
`packets` has the messages between them, over `fedge.link`.

Imports only from below: `rounds` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "engine": ["EdgeEngine"],
        "at_work": ["Site"],
        "host": ["LeafHost"],
    },
)
