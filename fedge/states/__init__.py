"""Model states: their means, records and files, clients' memory, and checkpoints.

A state is a mapping, name → array, as in PyTorch's state dicts. `averaging` computes means, `norms`
distances, `records` puts states into Flower's records without copies, `files` and `state_files` into files
mapped by all processes, `checkpoint` saves the state of a run, `distinct` finds shared states, `lazy_state`
computes a state entry by entry.

Imports only from below: `flower`, `process`, `seeding` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "averaging": ["State", "weighted_mean"],
        "checkpoint": ["Checkpoint", "CheckpointError", "write_checkpoint"],
        "lazy_state": ["LazyState"],
        "files": ["StateFileError", "open_state", "write_state"],
        "norms": ["update_norm"],
        "records": ["from_record", "to_record"],
        "state_files": ["SharedStates"],
    },
)
