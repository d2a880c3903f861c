"""Callbacks: a user's code called during a run, and able to end it.

`callback` has the base class and its arguments, `stopping` the built-in ones, `calls` calls all callbacks of
a run and keeps their state.

Imports only from below: `console`, `engine` and rooms below them.
"""

from typing import TYPE_CHECKING

import lazy_loader as lazy

if TYPE_CHECKING:
    from fedge.callbacks.callback import Callback as Callback
    from fedge.callbacks.callback import EndedRun as EndedRun
    from fedge.callbacks.callback import LeafRound as LeafRound
    from fedge.callbacks.callback import Round as Round
    from fedge.callbacks.callback import Run as Run
    from fedge.callbacks.calls import CallbackError as CallbackError
    from fedge.callbacks.calls import Callbacks as Callbacks
    from fedge.callbacks.stopping import Budget as Budget
    from fedge.callbacks.stopping import ByteBudget as ByteBudget
    from fedge.callbacks.stopping import EarlyStopping as EarlyStopping
    from fedge.callbacks.stopping import Floor as Floor
    from fedge.callbacks.stopping import TimeBudget as TimeBudget

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "callback": ["Callback", "EndedRun", "LeafRound", "Round", "Run"],
        "calls": ["CallbackError", "Callbacks"],
        "stopping": ["Budget", "ByteBudget", "EarlyStopping", "Floor", "TimeBudget"],
    },
)
