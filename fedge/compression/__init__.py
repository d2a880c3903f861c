"""Compression of uploads: codes of updates, error feedback, size in bytes (docs/hierarchy.md).

A sender compresses its update, the difference from the received model, and the receiver adds the decoded
update to this model. Clients, leaves and regions are senders.

Source of the frame: Seide et al. 2014, Karimireddy et al. 2019 (error feedback).

Imports only from below: `states`, `timing`, `metrics`, `native` and rooms below them.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from fedge.compression.compressor import Compressor as Compressor
    from fedge.compression.configured import uplink_of_clients as uplink_of_clients
    from fedge.compression.configured import uplink_of_servers as uplink_of_servers
    from fedge.compression.rounding import Float16 as Float16
    from fedge.compression.rounding import Int8 as Int8
    from fedge.compression.sending import Sending as Sending
    from fedge.compression.signs import Sign as Sign
    from fedge.compression.sparse import TopK as TopK
    from fedge.compression.uplink import Uplink as Uplink
    from fedge.compression.uplink import Upload as Upload

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "configured": ["uplink_of_clients", "uplink_of_servers"],
        "compressor": ["Compressor"],
        "rounding": ["Float16", "Int8"],
        "sending": ["Sending"],
        "signs": ["Sign"],
        "sparse": ["TopK"],
        "uplink": ["Uplink", "Upload"],
    },
)
