"""``fedge compare``: compares the runs of one sweep by its plan, and other runs by their settings."""

import argparse
from pathlib import Path

from fedge.records.folder import find_run


def compare_command(options: argparse.Namespace) -> int:
    """Carry out ``fedge compare``."""
    from fedge.sweep.study import kept_study

    folders = [find_run(name, options.runs_dir) for name in options.runs]
    if len(folders) == 1:
        study = kept_study(folders[0])
        if study is not None:
            from fedge.sweep.comparing import compare_study  # loads Matplotlib

            return compare_study(study, options)
    from fedge.report.commands import compare_runs

    return compare_runs(options, [run for folder in folders for run in _ordered_runs(folder)])


def _ordered_runs(folder: Path) -> list[Path]:
    """The runs in a folder; a sweep's begin with its reference, and those not in its plan come last."""
    from fedge.report.listing import runs_in
    from fedge.sweep.study import kept_study

    runs, study = runs_in(folder), kept_study(folder)
    places = {run.folder: place for place, run in enumerate(study.runs)} if study else {}
    return sorted(runs, key=lambda run: places.get(run, len(places)))
