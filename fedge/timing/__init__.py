"""Measurement of a run's time (docs/timing.md).

`laps` splits the server's round into phases, `calls` are the times measured by clients, `timeline` combines
both: each worker's work while the server waited. `nodes` has the memory of a deployment's nodes.

Imports only from below: `flower`, `process`, `seeding` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "calls": ["WorkClock"],
        "laps": ["LapClock"],
        "timeline": ["RoundTimelines", "Timeline", "TimelineBook", "cut_timelines"],
    },
)
