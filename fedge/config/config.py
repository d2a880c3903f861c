"""The configuration of a run: all options, checked together."""

from dataclasses import dataclass, fields

from fedge.config.contradictions import refuse_contradictions
from fedge.config.registers.option import Section
from fedge.config.run_options import RunOptions


@dataclass(frozen=True)
class Config(RunOptions):
    """All options of a run, checked; made by `from_run_config`, and flattened again by `to_run_config`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_contradictions(self)


SECTIONS: dict[str, type[Section]] = {
    f.name: f.type  # type: ignore[misc]
    for f in fields(Config)
    if not f.metadata
}
