"""Numbers reported by papers, with remarks on them: `reported.toml` of a table's folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedge.launch.projects.project import read_toml
from studies.tables.readings import reading

FILE, FOUND = "reported.toml", "found.md"
PERCENT = 100.0


@dataclass(frozen=True)
class Measure:
    """A column of a paper's table.

    Attributes:
        name: of a reading (`studies.tables.readings`).
        title: as the page calls it, with its unit.
        scale: from the reading to the title's unit.
        digits: after the point.
        reported: comparison → variant → mean and, where known, deviation, in the title's unit.
    """

    name: str
    title: str
    scale: float = PERCENT
    digits: int = 1
    reported: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A paper's order of two variants.

    Attributes:
        measure: name of a reading.
        more, less: variants; the first has the higher number.
        where: title of the comparison.
        scale: from the reading to the page's unit.
        digits: after the point.
    """

    measure: str
    more: str
    less: str
    where: str = ""
    scale: float = PERCENT
    digits: int = 1


@dataclass(frozen=True)
class Reported:
    """A table of a paper.

    Attributes:
        name: of its folder.
        title: a heading.
        source: the paper, and whether its numbers were confirmed there.
        differs: from the paper, with settings as published; a sentence each.
        cuts: option → reason for its cut.
        measures: at least one.
        claims: orders claimed by the paper.
        found: text on rows outside their intervals, Markdown; empty before runs were looked into.
    """

    name: str
    title: str
    source: str
    differs: Sequence[str]
    cuts: Mapping[str, str]
    measures: Sequence[Measure]
    claims: Sequence[Claim]
    found: str


def read_reported(folder: Path) -> Reported:
    """The numbers of a folder.

    Raises:
        ValueError: a key or a reading is unknown, or one is missing; file and key are named.
    """
    path = folder / FILE
    table = dict(read_toml(path, "the reported numbers"))
    try:
        measures = [_measure(entry) for entry in table.pop("measures")]
        claims = [_claim(entry) for entry in table.pop("claims", [])]
        text = folder / FOUND
        found = text.read_text(encoding="utf-8") if text.exists() else ""
        return Reported(
            name=folder.name, measures=measures, claims=claims, found=found,
            differs=table.pop("differs", []), cuts=table.pop("cuts", {}), **table,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _measure(table: dict[str, Any]) -> Measure:
    measure = Measure(**table)
    reading(measure.name)
    return measure


def _claim(table: dict[str, Any]) -> Claim:
    claim = Claim(**table)
    reading(claim.measure)
    return claim
