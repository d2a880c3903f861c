"""Configuration of a run: its options, without contradictions between them."""

from dataclasses import dataclass, fields

from fedge.config.contradictions import refuse_contradictions
from fedge.config.registers.option import Section
from fedge.config.run_options import RunOptions


@dataclass(frozen=True)
class Config(RunOptions):
    """A whole run, checked. `from_run_config` makes it, `to_run_config` gives the flat mapping back."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_contradictions(self)


SECTIONS: dict[str, type[Section]] = {
    f.name: f.type  # type: ignore[misc]
    for f in fields(Config)
    if not f.metadata
}
