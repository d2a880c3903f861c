"""The methods of `fedge.methods` as parts of registers; they are listed in its methods.toml."""

import sys
from pathlib import Path

from fedge.config.registers.register import Entry
from fedge.config.registers.traits import having

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def methods_of(tier: str, *traits: str) -> list[Entry]:
    """The methods of `fedge.methods` with a part on a tier, "class" or "cloud"; it lists them itself."""
    file = Path(__file__).parents[2] / "methods" / "methods.toml"
    listed = tomllib.loads(file.read_text(encoding="utf-8"))
    return [
        Entry(name, method["doc"], method[tier], having(*traits, *method.get("traits", ())))
        for name, method in listed.items()
        if tier in method
    ]
