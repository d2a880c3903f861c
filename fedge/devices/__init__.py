"""Learning on a virtual clock: devices with individual speeds, and servers that need not wait for all.

`procedure` is the event loop, `state` its state between events, and `world` the setting of a run. `planning`
and `transit` time the jobs, `periods` evaluate, `run_limits` are limits of a run, and `snapshot` is the
content of a checkpoint. `predictions`, `timing`, `pace` and `limits` predict and explain how long a run takes
(docs/devices.md). Inner rooms: `timeline` is the clock, with queues and links; `population` the devices;
`work` their jobs; `servers` a server's model and rule, `fedrevive` one such rule, `tiers` the servers above
the leaves; `clients` the real clients in training, with their memories.

Imports only from below: `rounds` and rooms below it.
"""

from typing import TYPE_CHECKING

import lazy_loader as lazy

if TYPE_CHECKING:
    from fedge.devices.population.fleet import Fleet as Fleet
    from fedge.devices.procedure import Procedure as Procedure
    from fedge.devices.servers.arrivals import Arrival as Arrival
    from fedge.devices.servers.arrivals import Memory as Memory
    from fedge.devices.timeline.clock import Clock as Clock
    from fedge.devices.timeline.clock import Event as Event
    from fedge.devices.timeline.clock import Kind as Kind

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "timeline.clock": ["Clock", "Event", "Kind"],
        "population.fleet": ["Fleet"],
        "procedure": ["Procedure"],
        "servers.arrivals": ["Arrival", "Memory"],
    },
)
