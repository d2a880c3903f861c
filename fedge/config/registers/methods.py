"""Register entries for the methods of `fedge.methods`, read from its methods.toml."""

import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedge.config.registers.option import option
from fedge.config.registers.register import Entry
from fedge.config.registers.traits import traits_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def methods_of(tier: str, *traits: str) -> list[Entry]:
    """Entries of the methods with a part on a tier: "class" for clients, or "cloud"."""
    file = Path(__file__).parents[2] / "methods" / "methods.toml"
    methods = tomllib.loads(file.read_text(encoding="utf-8"))
    return [
        Entry(
            name,
            method["doc"],
            method[tier],
            traits_of(*traits, *method.get("traits", ())),
            arguments=_argument_options(method.get(f"{tier}-arguments", {})),
        )
        for name, method in methods.items()
        if tier in method
    ]


def _argument_options(arguments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Declared arguments as options; methods with equal declarations share one object."""
    return {word.replace("-", "_"): _option(json.dumps(rule)) for word, rule in arguments.items()}


@cache
def _option(declaration: str) -> Any:
    """An option from its declaration, as JSON."""
    rule = json.loads(declaration)
    return option(rule.pop("default"), rule.pop("doc"), **{**rule, "choices": tuple(rule.get("choices", ()))})
