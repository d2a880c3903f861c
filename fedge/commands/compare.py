"""``fedge compare``: compares the runs of one sweep by its plan, and other runs by their settings."""

import argparse

from fedge.records.folder import find_run


def compare_command(options: argparse.Namespace) -> int:
    """Carry out ``fedge compare``."""
    from fedge.sweep.study import kept_study

    if len(options.runs) == 1:
        study = kept_study(find_run(options.runs[0], options.runs_dir))
        if study is not None:
            from fedge.sweep.comparing import compare_study  # loads Matplotlib

            return compare_study(study, options)
    from fedge.report.commands import compare_runs

    return compare_runs(options)
