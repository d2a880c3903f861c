"""Compression of uploads: codes of updates, error feedback, bytes (docs/hierarchy.md).

A sender compresses its update, the difference from the received model, and the receiver adds the decoded
update to this model. Clients, leaves and regions are senders.

Source of the frame: Seide et al. 2014, Karimireddy et al. 2019 (error feedback).

Imports only from below: `states`, `timing`, `metrics`, `native` and rooms below them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "chosen": ["uplink_of_clients", "uplink_of_servers"],
        "compressor": ["Compressor"],
        "rounding": ["Float16", "Int8"],
        "sending": ["Sending"],
        "signs": ["Sign"],
        "sparse": ["TopK"],
        "uplink": ["Uplink", "Upload"],
    },
)
