"""Learning on a virtual clock: devices with individual speeds, servers without waiting for all.

`clock` orders events, `fleet` times jobs, `duration` takes the user's times, `presets`, `gaussian`, `trace`,
`availability` and `attendance` describe devices, `table_files` reads and `convert` makes their files; `draws`
and `idle` are chance; `roster` has the devices present, `selection` picks one for work, and `choosing` and
`planning` are both at work; `line` is the queue of a busy server, `ends` bounds a run; `lookahead` lets real
clients train ahead of the clock. `rules` are servers' updates at an arrival, `server` holds its model,
`stepping` is momentum and Adam there, `vectors` are models in their computations. `sharing` is a link shared
by transfers, `network` all of them, `transit` jobs over them. `outlook` gives expectations. `revive`,
`distillation` and `generator` are FedRevive, `model_facts` such a rule's facts of its model. `algorithms` has
clients' memories and leaf parts. `cloud` is above the leaves, `groups` are leaves with a shared model.
`procedure` is the loop, `world` its setting, `periods` end with an evaluation, `evaluation` asks how good a
model is, `ledger` counts, `limits` says where time went, `timing` is a clock without training, `snapshot` the
content of a checkpoint (docs/devices.md).

Imports only from below: `rounds` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "clock": ["Clock", "Event", "Kind"],
        "fleet": ["Fleet"],
        "procedure": ["Procedure"],
        "rules": ["Arrival", "Memory"],
    },
)
