"""Scores of predictions, and agreement of groupings.

`scores` reads confusion matrices, `agreement` compares cluster labels with the truth and with those before.

Imports only from below: `flower`, `process`, `seeding` and rooms below them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "agreement": ["Agreement", "churn"],
        "scores": ["Spread", "accuracy", "macro_f1", "score_spread"],
    },
)
