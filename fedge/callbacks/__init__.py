"""Callbacks: the user's code, called during a run, with the option to end it.

`callback` has the base class and its arguments, `stopping` the built-in ones, `calls` calls all callbacks of
a run and keeps their state.

Imports only from below: `console`, `engine` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "callback": ["Callback", "EndedRun", "LeafRound", "Round", "Run"],
        "calls": ["CallbackError", "Callbacks"],
        "stopping": ["Budget", "ByteBudget", "EarlyStopping", "Floor", "TimeBudget"],
    },
)
