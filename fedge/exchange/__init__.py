"""What server and clients say to each other, and who is there.

`hello`, `train` and `evaluate` are the three things that are said, the only places that know the names of
records, with `round_context` for what a round tells and `content` for what all messages are made of. `clients` is
the only place that knows node ids, `ordering` says who is sent to work first.

Imports only from below: `data`, `training` and what is under them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "clients": ["Clients", "Exchange", "RunError", "find_clients"],
        "evaluate": ["EvaluateReply", "Evaluation"],
        "hello": ["Hello"],
        "round_context": ["RoundContext"],
        "train": ["TrainReply"],
    },
)
