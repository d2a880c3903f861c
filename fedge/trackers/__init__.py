"""Experiment trackers for a run: TensorBoard, Weights & Biases, MLflow.

Each is an optional extra of the package and a module here, loaded only on use. What they have in common is
`tracker.Tracker`; `tracking` feeds it.

Imports only from below: `console`, `engine` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "tracker": ["TrackedRun", "Tracker", "open_tracker", "refuse_missing_extra"],
        "tracking": ["Tracking"],
    },
)
