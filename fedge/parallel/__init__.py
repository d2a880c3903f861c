"""A client's training on several processes of its machine (docs/clusters.md), by PyTorch's DDP.

`shares` deals a batch to processes, `batch_norm` takes statistics over all of it, `sgd` is the step of
`fedge.training.sgd` with the gradient of the whole batch, `member` is the program of one process, `arrays`
and `channel` the messages between it and its client, `team` starts, asks, replaces and ends the processes.

Imports only from below: `data`, `datasets`, `link`, `training` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "shares": ["own_rows"],
        "team": ["TeamKind", "Team", "TeamError"],
    },
)
