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
    found = [
        path
        for path in folder.glob("*.toml")
        if path.stem == settings or path.stem.startswith(f"{settings}-")
    ]
    return sorted(found, key=lambda path: path.stem)


def further_words(path: Path) -> str:
    """Words of a sweep file's name after its settings: "hhar" of cut-hhar.toml."""
    kind = next(kind for kind in (PUBLISHED, CUT, STUDY) if path.stem.startswith(kind))
    return path.stem.removeprefix(kind).removeprefix("-")


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


def cuts_table(published: Sweep, cuts: Sequence[Sweep], reported: Reported) -> str:
    """A table of what was cut, from what to what, and why; values of single sweeps have their names."""
    found = {sweep.path.stem.removeprefix(f"{CUT}-"): differing(published, sweep) for sweep in cuts}
    rows = []
    for key in sorted({key for one in found.values() for key in one}):
        theirs = next(one[key][0] for one in found.values() if key in one)
        ours = {name: _listed(one[key][1]) for name, one in found.items() if key in one}
        if len(ours) == len(found) and len(set(ours.values())) == 1:
            cell = next(iter(ours.values()))
        else:
            cell = "; ".join(f"{name}: {value}" for name, value in ours.items())
        rows.append([f"`{key}`", _listed(theirs), cell, reported.cuts.get(key, "")])
    before, after = len(published.seeds), _distinct([len(sweep.seeds) for sweep in cuts])
    if after != [before]:
        rows.append(["seeds", str(before), _listed(after), reported.cuts.get("seeds", "")])
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
