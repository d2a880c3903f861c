"""Settings as published beside settings that were cut: which options differ, and why."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedge.config.flat import to_run_config
from fedge.config.registers.option import Scalar
from fedge.sweep.plan import Sweep
from studies.result_tables import markdown
from studies.tables.reported import Reported

PUBLISHED, CUT, STUDY = "as-published", "cut", "study"
_PLACE = ("seed", "run-name", "runs-dir", "resume")


def files(folder: Path, settings: str) -> list[Path]:
    """Sweep files of a folder for settings, "as-published", "cut" or "study"; further words follow a "-"."""
    return sorted(
        path
        for path in folder.glob("*.toml")
        if path.stem == settings or path.stem.startswith(f"{settings}-")
    )


def differing(published: Sweep, cut: Sweep) -> dict[str, tuple[list[Scalar], list[Scalar]]]:
    """Option → its values as published and cut, of runs with one label, in the order of the file."""
    theirs, ours = _by_label(published), _by_label(cut)
    found: dict[str, tuple[list[Scalar], list[Scalar]]] = {}
    for label in theirs.keys() & ours.keys():
        for key in theirs[label]:
            if key not in _PLACE and theirs[label][key] != ours[label][key]:
                found[key] = ([], [])
    for key, (before, after) in found.items():
        for label in theirs:
            if label in ours:
                before.append(theirs[label][key])
                after.append(ours[label][key])
    return {key: (_distinct(before), _distinct(after)) for key, (before, after) in sorted(found.items())}


def cuts_table(published: Sweep, cut: Sweep, reported: Reported) -> str:
    """A table of what was cut, from what to what, and why."""
    rows = [
        [f"`{key}`", _listed(before), _listed(after), reported.cuts.get(key, "")]
        for key, (before, after) in differing(published, cut).items()
    ]
    seeds = [len(published.seeds), len(cut.seeds)]
    rows += [["seeds", *map(str, seeds), reported.cuts.get("seeds", "")]] if seeds[0] != seeds[1] else []
    return markdown(("", "as published", "cut", "why"), rows)


def _by_label(sweep: Sweep) -> Mapping[str, Mapping[str, Scalar]]:
    found: dict[str, Mapping[str, Scalar]] = {}
    for run in sweep.runs:
        flat = dict(to_run_config(run.config))
        if run.supernodes:
            flat["clients"] = run.supernodes
        found.setdefault(run.label, flat)
    return found


def _distinct(values: Sequence[Scalar]) -> list[Scalar]:
    return list(dict.fromkeys(values))


def _listed(values: Sequence[Scalar]) -> str:
    return ", ".join(str(value) if value != "" else "–" for value in values)
