"""``fedge compare`` of one sweep: against its own reference, for every combination of its other axes."""

import argparse
import sys

from fedge.config.registers.option import ConfigError
from fedge.process.escape import printable
from fedge.report.commands import file_error, refuse_target
from fedge.report.comparison.finals import choice, final_lines
from fedge.report.comparison.formats import FORMATS
from fedge.report.comparison.page import problems_of
from fedge.report.damaged_tables import intact_tables
from fedge.sweep.study import StudyPlan
from fedge.sweep.summary import comparisons, load_study, write_finals, write_study_page


def compare_study(study: StudyPlan, options: argparse.Namespace) -> int:
    """Write the page and tables of a study's runs, and print its final numbers; returns the exit code.

    Args:
        study: plan kept in the study's folder.
        options: output, csv, format and target of the command.

    Raises:
        ConfigError: no run has a round, the target cannot be reached, or a file cannot be written.
    """
    runs, missing = load_study(study)
    if not runs:
        raise ConfigError(
            f"the sweep must have a run with a finished round, but {study.folder} has none; start it again"
        )
    refuse_target(options.target, next(iter(runs.values())).score)
    for run in runs.values():
        for problem in problems_of(run):
            print(printable(f"fedge: {run.name}: {problem}"), file=sys.stderr)
    try:
        with intact_tables(list(runs.values())):
            results = comparisons(study, runs, options.target)
            write_study_page(study, missing, results, options.output, "fedge compare")
            if options.csv:
                write_finals(study, results, options.csv)
    except OSError as error:
        raise file_error(error, options.output) from error
    for comparison in results:
        if comparison.title:
            print(f"{_COMMENT.get(options.format, '')}{comparison.title}:")
        if options.format == "text":
            print(*final_lines(comparison.rows), sep="\n")
            if (line := choice(comparison.rows, comparison.groups[0].score)) is not None:
                print(line)
        else:
            print(FORMATS[options.format][1](comparison.rows))
    print(options.output, file=sys.stdout if options.format == "text" else sys.stderr)
    return 0


_COMMENT = {"latex": "% "}
