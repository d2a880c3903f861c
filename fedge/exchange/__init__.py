"""Exchange of messages between server and clients, and the roll of those present.

`hello`, `train` and `evaluate` are the three kinds of messages, the only places with the names of records,
with `joint` for the latter two in one message, `round_context` for facts of a round and `content` for parts
of messages. `clients` and `finding` are the only places with node ids, `delivery` matches replies to
questions, `ordering` orders clients for work; `engine` is the interface to the clients' engine, `failure` the
reasons for refusing a client, `leaving` everything leaving a client, with marks.

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
