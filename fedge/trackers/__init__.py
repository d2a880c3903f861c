"""Experiment trackers for a run: TensorBoard, Weights & Biases, MLflow.

Each is an optional extra of the package and a module here, loaded only on use. Their common interface is
`tracker.Tracker`, and `tracking` feeds it.

Imports only from below: `console`, `engine` and rooms below them.
"""

from typing import TYPE_CHECKING

import lazy_loader as lazy

if TYPE_CHECKING:
    from fedge.trackers.tracker import TrackedRun as TrackedRun
    from fedge.trackers.tracker import Tracker as Tracker
    from fedge.trackers.tracker import open_tracker as open_tracker
    from fedge.trackers.tracker import refuse_missing_extra as refuse_missing_extra
    from fedge.trackers.tracking import Tracking as Tracking

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "tracker": ["TrackedRun", "Tracker", "open_tracker", "refuse_missing_extra"],
        "tracking": ["Tracking"],
    },
)
