"""One global round: leaf rounds, cloud step, gate, evaluation, and the resulting rows.

`strategy` runs the steps in order: `training` the leaf rounds, `server_round` the cloud step, `gates` the
decisions, `served_models` fine-tuning and final evaluation; `lines` lists the models to train, and
`evaluation` asks clients. Leaf servers are reached through a `port`; if they are in this process
(`routed_leaves`), all messages go through `transport`. Inner room: `measurements` collects numbers and makes
rows of tables.

Imports only from below: `serving` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "port": ["LeafPort"],
        "measurements.results": ["ClientResult", "LeafResult", "RoundResult"],
        "strategy": ["HierarchicalStrategy"],
        "task": ["RunTask"],
        "transport": ["RoundServices", "Transport"],
    },
)
