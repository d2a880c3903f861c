"""Where seconds went (docs/timing.md).

`laps` cuts the server's round into phases, `calls` is what a client says of its own time, `timeline` puts
both together: what every worker did while the server waited. `nodes` is what nodes of a deployment held then.

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
