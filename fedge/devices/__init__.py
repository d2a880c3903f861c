"""Learning on a virtual clock: devices with individual speeds, servers without waiting for all.

`procedure` is the loop, `world` its setting, `planning` and `transit` are jobs under way, `periods` end with
an evaluation, `ends` bound a run, `snapshot` is the content of a checkpoint; `outlook`, `timing`, `pace` and
`limits` say how long a run takes and why (docs/devices.md). Inner rooms: `timeline` is the clock, with queues
and links; `population` the devices; `work` their jobs; `servers` are a server's model and rule, `fedrevive`
one such rule, `tiers` the servers above the leaves; `clients` are the real clients that train, with their
memories.

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
