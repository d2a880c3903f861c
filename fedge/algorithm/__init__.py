"""A client's algorithm: a method's declarations for each tier, and the objects that Fedge gives it.

`algorithm` has what a client does, `leaf_part` what its leaf does beside it, `client` the client's toolbox,
`descent` the step with what methods change about it, `memory` what a client keeps, `trial` the forms of all
that a method sends and keeps, found before the first round. Methods stand in `fedge.methods`, or in files of
the user's own (docs/own-method.md).

Imports only from below: `data`, `datasets`, `link`, `training` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "algorithm": ["Algorithm", "Sent"],
        "client": ["Client"],
        "leaf_part": ["Brought", "LeafPart", "LeafRound"],
        "descent": ["Fit"],
    },
)
