"""Configuration of a run: options, their allowed names, and contradictions.

`config` is the configuration of a whole run, `flat` reads it from a mapping, `contradictions` refuses
inconsistent sections, `topology` assigns clients to leaves. Inner rooms: `sections` lists all options by
concern; `registers` declares the form of an option, and lists the built-in models, rules and methods, one
register per kind.

Imports nothing else of Fedge.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "registers.option": ["ConfigError", "Scalar"],
        "config": ["Config"],
        "flat": ["check_keys", "from_run_config", "options", "to_run_config"],
        "topology": ["clients_per_leaf", "known_per_leaf", "unseen_ids"],
    },
)
