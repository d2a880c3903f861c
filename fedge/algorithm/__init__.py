"""Base classes of a federated method, and the objects passed to it.

A method derives `algorithm.Algorithm` for the client and optionally `leaf_part.LeafPart` for the leaf.
`client` is the client as the method sees it, `descent` is local training with the method's changes, and
`client_round` is one leaf round of a client. Built-in methods are in `fedge.methods`, a user's own in their
project (docs/own-method.md).

Imports only from below: `data`, `datasets`, `link`, `training` and rooms below them.
"""

from typing import TYPE_CHECKING

import lazy_loader as lazy

if TYPE_CHECKING:
    from fedge.algorithm.algorithm import Algorithm as Algorithm
    from fedge.algorithm.algorithm import Sent as Sent
    from fedge.algorithm.client import Client as Client
    from fedge.algorithm.descent import Fit as Fit
    from fedge.algorithm.leaf_part import LeafContributions as LeafContributions
    from fedge.algorithm.leaf_part import LeafPart as LeafPart
    from fedge.algorithm.leaf_part import LeafTurn as LeafTurn
    from fedge.algorithm.leaf_part import ReplyToLeaf as ReplyToLeaf

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "algorithm": ["Algorithm", "Sent"],
        "client": ["Client"],
        "leaf_part": ["ReplyToLeaf", "LeafContributions", "LeafPart", "LeafTurn"],
        "descent": ["Fit"],
    },
)
