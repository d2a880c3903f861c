"""Settings as published beside cut settings: which options differ, and why."""

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
    paths = [
        path
        for path in folder.glob("*.toml")
        if path.stem == settings or path.stem.startswith(f"{settings}-")
    ]
    return sorted(paths, key=lambda path: path.stem)


def further_words(path: Path) -> str:
    """Words of a sweep file's name after its settings: "hhar" of cut-hhar.toml."""
    kind = next(kind for kind in (PUBLISHED, CUT, STUDY) if path.stem.startswith(kind))
    return path.stem.removeprefix(kind).removeprefix("-")


def differing(published: Sweep, cut: Sweep) -> dict[str, tuple[list[Scalar], list[Scalar]]]:
    """Option → its values as published and cut, of runs with one label, in the order of the file."""
    published_by_label, cut_by_label = _by_label(published), _by_label(cut)
    values_by_option: dict[str, tuple[list[Scalar], list[Scalar]]] = {}
    for label in published_by_label.keys() & cut_by_label.keys():
        for key in published_by_label[label]:
            if key not in _PLACE and published_by_label[label][key] != cut_by_label[label][key]:
                values_by_option[key] = ([], [])
    for key, (before, after) in values_by_option.items():
        for label in published_by_label:
            if label in cut_by_label:
                before.append(published_by_label[label][key])
                after.append(cut_by_label[label][key])
    return {
        key: (_distinct(before), _distinct(after))
        for key, (before, after) in sorted(values_by_option.items())
    }


def cuts_table(published: Sweep, cuts: Sequence[Sweep], reported: Reported) -> str:
    """A table of cut options: values before and after, reasons; values of single sweeps have their names."""
    differences = {sweep.path.stem.removeprefix(f"{CUT}-"): differing(published, sweep) for sweep in cuts}
    rows = []
    for key in sorted({key for options in differences.values() for key in options}):
        published_values = next(options[key][0] for options in differences.values() if key in options)
        cut_values = {
            name: _joined(options[key][1]) for name, options in differences.items() if key in options
        }
        if len(cut_values) == len(differences) and len(set(cut_values.values())) == 1:
            cell = next(iter(cut_values.values()))
        else:
            cell = "; ".join(f"{name}: {value}" for name, value in cut_values.items())
        rows.append([f"`{key}`", _joined(published_values), cell, reported.cuts.get(key, "")])
    before, after = len(published.seeds), _distinct([len(sweep.seeds) for sweep in cuts])
    if after != [before]:
        rows.append(["seeds", str(before), _joined(after), reported.cuts.get("seeds", "")])
    return markdown(("", "as published", "cut", "why"), rows)


def _by_label(sweep: Sweep) -> Mapping[str, Mapping[str, Scalar]]:
    options_by_label: dict[str, Mapping[str, Scalar]] = {}
    for run in sweep.runs:
        flat = dict(to_run_config(run.config))
        if run.supernodes:
            flat["clients"] = run.supernodes
        options_by_label.setdefault(run.label, flat)
    return options_by_label


def _distinct(values: Sequence[Scalar]) -> list[Scalar]:
    return list(dict.fromkeys(values))


def _joined(values: Sequence[Scalar]) -> str:
    return ", ".join(str(value) if value != "" else "–" for value in values)
