"""Tasks: labels, loss, sums over a split on each client, and the scores computed from them.

`task` defines tasks, `classification`, `multilabel`, `regression` and `sequence` are Fedge's, `configured`
adds a user's loss or scores. A client's sums are arrays of a fixed form; added over clients they are the sums
over all examples, so a score of many clients is never a mean of scores.

Imports only from below: `states`, `timing`, `metrics`, `native` and rooms below them; PyTorch only where a
loss is computed.
"""

from typing import TYPE_CHECKING

import lazy_loader as lazy

if TYPE_CHECKING:
    from fedge.tasks.classification import Classification as Classification
    from fedge.tasks.configured import CLASSIFICATION as CLASSIFICATION
    from fedge.tasks.configured import task_of as task_of
    from fedge.tasks.multilabel import Multilabel as Multilabel
    from fedge.tasks.regression import Regression as Regression
    from fedge.tasks.sequence import Sequence as Sequence
    from fedge.tasks.task import Score as Score
    from fedge.tasks.task import Sums as Sums
    from fedge.tasks.task import Task as Task
    from fedge.tasks.task import total_sums as total_sums

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "configured": ["CLASSIFICATION", "task_of"],
        "classification": ["Classification"],
        "multilabel": ["Multilabel"],
        "regression": ["Regression"],
        "sequence": ["Sequence"],
        "task": ["Score", "Sums", "Task", "total_sums"],
    },
)
