"""A client's algorithm: a method's declarations for each tier, and the objects given to it.

`algorithm` has the client's part, `leaf_part` its leaf's, `client` the client's toolbox, `descent` the step
with methods' changes, `memory` a client's memory, `trial` the forms of a method's messages and states,
determined before the first round. Methods stand in `fedge.methods`, or in files of the user's own
(docs/own-method.md).

Imports only from below: `data`, `datasets`, `link`, `training` and rooms below them.
"""

from typing import TYPE_CHECKING

import lazy_loader as lazy

if TYPE_CHECKING:
    from fedge.algorithm.algorithm import Algorithm as Algorithm
    from fedge.algorithm.algorithm import Sent as Sent
    from fedge.algorithm.client import Client as Client
    from fedge.algorithm.descent import Fit as Fit
    from fedge.algorithm.leaf_part import Brought as Brought
    from fedge.algorithm.leaf_part import LeafContributions as LeafContributions
    from fedge.algorithm.leaf_part import LeafPart as LeafPart
    from fedge.algorithm.leaf_part import LeafTurn as LeafTurn

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "algorithm": ["Algorithm", "Sent"],
        "client": ["Client"],
        "leaf_part": ["Brought", "LeafContributions", "LeafPart", "LeafTurn"],
        "descent": ["Fit"],
    },
)
