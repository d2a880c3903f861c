"""Configuration of a run: options, the names that they take, and contradictions.

`option` declares and checks one option; `sections` has all of them, by concern, `config` a whole run's,
`flat` the mapping that they are read from; `contradictions` refuses sections that do not fit together,
`parts` the models, rules, methods and so on that come with Fedge, one `register` per kind,
`choices` other words; `topology` assigns clients to leaves.

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
