"""What server and clients say to each other, and who is there.

`messages` is the only place that knows the names of records, `clients` the only one that knows node ids,
`ordering` says who is sent to work first.

Imports only from below: `data`, `training` and what is under them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "clients": ["Clients", "Exchange", "RunError", "find_clients"],
        "messages": ["EvaluateReply", "RoundContext", "TrainReply"],
    },
)
