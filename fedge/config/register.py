"""What can stand behind a name: a register per kind of part, with its name, what it is, where its code is.

A register holds no code and loads none until a part is used, so that a configuration can be checked without
torch or Flower, and no module must be imported for its side effects. `fedge.config.parts` has the registers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fedge.config.option import ConfigError, nearest, shown


@dataclass(frozen=True)
class Entry:
    """One part that comes with Fedge.

    Attributes:
        name: as the option has it.
        doc: one line: what it is.
        code: "module:Name" of its class or function; empty for a name that stands for none.
        traits: what must be known of it before its code is loaded, as that a method needs the true groups.
        package: what must be installed for it; empty where Fedge's own dependencies suffice.
    """

    name: str
    doc: str
    code: str = ""
    traits: frozenset[str] = frozenset()
    package: str = ""


class Register:
    """All parts of one kind, in the order in which they are listed.

    Attributes:
        option: key of the option that names one of them.
    """

    def __init__(self, option: str, *entries: Entry) -> None:
        """List the parts that come with Fedge; their names differ."""
        self.option = option
        self._entries = {entry.name: entry for entry in entries}
        assert len(self._entries) == len(entries), f"two parts of {option} have one name"

    def __iter__(self) -> Iterator[Entry]:
        """Yield every part."""
        return iter(self._entries.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self._entries)

    def having(self, trait: str) -> tuple[str, ...]:
        """Return the names of the parts that have a trait."""
        return tuple(entry.name for entry in self if trait in entry.traits)

    def has(self, name: str, trait: str) -> bool:
        """Tell whether a part is known to have a trait."""
        return name in self._entries and trait in self._entries[name].traits

    def entry(self, name: str) -> Entry:
        """Return the part of a name.

        Raises:
            ConfigError: there is none.
        """
        if name not in self._entries:
            raise ConfigError(
                f"{self.option} must be one of {', '.join(self.names)}, but is {shown(name)}"
                f"{nearest(name, self.names) or f'; take for example {self.names[0]}'}"
            )
        return self._entries[name]

    def load(self, name: str) -> Any:
        """Return the class or function behind a name, importing its module the first time.

        Raises:
            ConfigError: there is no such part.
        """
        entry = self.entry(name)
        assert entry.code, f"{self.option}={name} stands for no code"
        module, _, attribute = entry.code.partition(":")
        return getattr(import_module(module), attribute)
