"""Messages between server and clients, their exchange, and the roll of connected clients.

`hello`, `train` and `evaluate` are the three kinds of messages, and `joint` combines the last two; only they,
`round_context` (facts of a round) and `content` (common parts) know the names of records. Only `clients` and
`finding` know node ids. `delivery` matches replies to messages, `ordering` sends the largest clients first,
`engine` is the interface to the clients' engine, `failure` lists reasons for failure, and `leaving` all
quantities leaving a client.

Imports only from below: `data`, `datasets`, `link`, `training` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "clients": ["Clients", "Exchange"],
        "finding": ["find_clients"],
        "engine": ["Engine", "RunError"],
        "evaluate": ["EvaluateReply", "Evaluation"],
        "failure": ["Failure"],
        "hello": ["Hello"],
        "round_context": ["RoundContext"],
        "train": ["TrainReply"],
    },
)
