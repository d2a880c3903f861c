"""Code of the user's that is called while a run goes on, and may end it: early stopping, budgets, one's own.

`callback` has the base class and what it is shown, `stopping` those that come with Fedge, `calls` calls all
of a run and keeps what they remember.

Imports only from below: `console`, `engine` and what is under them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "callback": ["Callback", "EndedRun", "LeafRound", "Round", "Run"],
        "calls": ["CallbackError", "Callbacks"],
        "stopping": ["Budget", "ByteBudget", "EarlyStopping", "TimeBudget"],
    },
)
