"""The gate, and the models served to clients (docs/serving.md).

`gate` decides on one offer, `decision` on all offers to a leaf, `personal` on fine-tuned models for a leaf's
known clients; `roles` assigns served models.

Imports only from below: `cloud` and rooms below it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "decision": ["serve_decision"],
        "gate": ["GateResult", "Paired"],
        "personal": ["PersonalResult"],
        "roles": ["served_role"],
    },
)
