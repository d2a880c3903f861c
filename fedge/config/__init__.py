"""Configuration of a run: options, their allowed names, and contradictions.

`option` declares and checks one option; `sections` has all of them, by concern, `config` a whole run's,
`flat` reads them from a mapping; `contradictions` refuses inconsistent sections, `parts` has the built-in
models, rules, methods and so on, one `register` per kind, `choices` other words; `topology` assigns clients
to leaves.

Imports nothing else of Fedge.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "option": ["ConfigError", "Scalar"],
        "config": ["Config"],
        "flat": ["check_keys", "from_run_config", "options", "to_run_config"],
        "topology": ["clients_per_leaf", "known_per_leaf", "unseen_ids"],
    },
)
