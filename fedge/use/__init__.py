"""Commands on a run's models: ``fedge predict``, ``fedge export`` (docs/use.md).

Imports only from below: `launch` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, submod_attrs={"commands": ["add_commands"]})
