"""Tasks: labels, loss, sums over a split on each client, and the scores made of them.

`task` defines tasks, `classification` is Fedge's, `chosen` adds a user's loss or scores. A client's sums are
arrays of a fixed form, whose sums over clients are those of all their examples: a score of many clients is
never a mean of scores.

Imports only from below: `states`, `timing`, `metrics`, `native` and rooms below them; PyTorch only where a
loss is computed.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "chosen": ["CLASSIFICATION", "task_of"],
        "classification": ["Classification"],
        "multilabel": ["Multilabel"],
        "regression": ["Regression"],
        "sequence": ["Sequence"],
        "task": ["Score", "Sums", "Task", "total_sums"],
    },
)
