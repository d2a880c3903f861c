"""Learning on a virtual clock: devices that take their time, servers that do not wait for all of them.

`clock` orders events, `fleet` says how long a job takes, `duration` what the user says of that, `presets`,
`gaussian`, `trace`, `availability` and `attendance` what devices there are, `table_files` reads and
`convert` makes their files; `draws` and `idle` are chance; `roster` knows who is there, `selection` says
who is given work, and `choosing` and `planning` are both at work; `line` is what waits for a busy server,
`ends` what ends a run; `lookahead` lets real clients train ahead of the clock. `rules` say what a server
makes of an arrival, `server` holds its model, `stepping` is momentum and Adam there, `vectors` are models
as they compute with them. `sharing` is a link that transfers share, `network` all of them, `transit` jobs
over them. `outlook` says what to expect. `revive`, `distillation` and `generator` are FedRevive,
`model_facts` what such a rule knows of its model. `cloud` is above the leaves, `groups` says which of them
share a model. `procedure` is the loop, `world` what it is about, `periods` what an evaluation ends,
`evaluation` asks how good a model is, `ledger` counts, `limits` says where time went, `timing` is a clock
without training, `snapshot` what a checkpoint keeps (docs/devices.md).

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
