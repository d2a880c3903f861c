"""Compression of what is sent upwards: codes of updates, error feedback, bytes (docs/hierarchy.md).

A sender compresses how far it has moved from the model that it was given, and the receiver adds the decoded
update to that model. Clients, leaves and regions are senders.

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
