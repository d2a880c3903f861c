"""Training of a client by several processes on its machine, with PyTorch's DDP (docs/clusters.md).

`team` starts, uses, replaces and ends the processes, each of which runs `member`; `arrays` and `channel`
carry messages between them and their client. `shares` divides a batch among processes, `batch_norm` computes
statistics over the whole batch, and `sgd` is the step of `fedge.training.sgd` with the whole batch's
gradient.

Imports only from below: `data`, `datasets`, `link`, `training` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "shares": ["rows_of_process"],
        "team": ["TeamKind", "Team", "TeamError"],
    },
)
