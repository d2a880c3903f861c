"""The subcommands `fedge report`, `fedge compare`, `fedge export-run` and `fedge runs`.

Matplotlib and Polars are loaded when a command runs, not when the command line is parsed.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedge.config.registers.option import ConfigError
from fedge.process.escape import printable
from fedge.records.folder import REPORT, find_run

if TYPE_CHECKING:
    from fedge.tasks.task import Score

_RUNS = Path("runs")


def add_commands(commands: Any, compare_command: Callable[[argparse.Namespace], int]) -> None:
    """Add the subcommands; `compare_command` carries out ``compare``."""
    report = commands.add_parser(
        "report",
        help="write a run's report.html, also of a running or failed run",
        also=("show", "plot", "view", "open", "results"),
    )
    report.add_argument("run", nargs="?", default="latest", help="run folder, or its name (default: latest)")
    report.add_argument("-o", "--output", type=Path, help="output file (default: report.html in the folder)")
    report.set_defaults(command=_report, needs_room=True)
    compare = commands.add_parser(
        "compare", help="write one page on several runs; repetitions are averaged", also=("diff",)
    )
    compare.add_argument(
        "runs", nargs="+", metavar="RUN",
        help="run folder, or its name; the first is the reference. A single sweep is compared according "
        "to its file; with others, it stands for all its runs",
    )  # fmt: skip
    compare.add_argument(
        "--format", choices=("text", "markdown", "latex"), default="text",
        help="format of the final numbers: all as text, or a table for papers (default: text)",
    )  # fmt: skip
    compare.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("compare.html"),
        help="output file (default: %(default)s)",
    )
    compare.add_argument("--csv", type=Path, metavar="FILE", help="also write the final numbers as CSV")
    compare.add_argument(
        "--target", type=float, metavar="SCORE",
        help="mean test score, such as accuracy (0..1), as target for rounds, bytes and seconds "
             "(default: 95 %% of the reference's final one, or 5 %% more where less is better)",
    )  # fmt: skip
    compare.set_defaults(command=compare_command, needs_room=True)
    export = commands.add_parser(
        "export-run", help="copy a run for sharing, without facts of the machine and names of persons"
    )
    export.add_argument("run", metavar="RUN", help="run folder, or its name")
    export.add_argument(
        "target", metavar="DEST", type=Path, help="new folder, or archive: .zip, .tar, .tar.gz, .tgz"
    )
    export.set_defaults(command=_export)
    runs = commands.add_parser(
        "runs",
        help="list runs with status and result, newest first",
        also=("list", "ls", "history", "results"),
    )
    runs.set_defaults(command=_runs)
    for parser in (report, compare, export, runs):
        parser.add_argument("--runs-dir", type=Path, default=_RUNS, help="folder of all runs (default: runs)")


def _report(options: argparse.Namespace) -> int:
    """Carry out ``fedge report``."""
    folder = find_run(options.run, options.runs_dir)
    from fedge.records.reading.reader import load_run
    from fedge.report.comparison.page import problems_of
    from fedge.report.run_page import write_report_of

    try:
        run = load_run(folder)
        page = write_report_of(run, options.output)
        problems = problems_of(run)
    except OSError as error:
        raise file_error(error, options.output or folder / REPORT) from error
    for problem in problems:
        print(printable(f"fedge: {run.name}: {problem}"), file=sys.stderr)
    print(page)
    return 0


def file_error(error: OSError, path: Path) -> ConfigError:
    """Error for an unreadable file of a run, or for a page `path` that cannot be written."""
    if error.strerror is None:
        return ConfigError(str(error))
    if error.filename and _is_run_file(Path(error.filename), path):
        return ConfigError(
            f"the files of a run must be readable for this user, but {error.filename}: {error.strerror}; "
            f"change its permissions or its folder's (chmod, chown)"
        )
    return ConfigError(
        f"the page must be writable, but {error.filename or path}: {error.strerror}; choose a file with -o"
    )


def _is_run_file(path: Path, page: Path) -> bool:
    """Whether a lost file is a source of the page, rather than the page itself."""
    return path.parent.resolve() != page.parent.resolve() or (
        os.path.lexists(path) and not os.access(path, os.R_OK)
    )


def compare_runs(options: argparse.Namespace, folders: Sequence[Path]) -> int:
    """Carry out ``fedge compare`` of the runs in `folders`, the first of which is the reference."""
    from fedge.records.reading.reader import load_run
    from fedge.report.comparison.finals import choice, final_lines, write_csv
    from fedge.report.comparison.formats import FORMATS
    from fedge.report.comparison.groups import group_runs, refuse_other_scores
    from fedge.report.comparison.page import group_differences, problems_of, write_comparison

    try:
        runs = list({run.folder: run for run in map(load_run, folders)}.values())
        refuse_other_scores(runs)
        refuse_target(options.target, runs[0].score)
        for run in runs:
            for problem in problems_of(run):
                print(printable(f"fedge: {run.name}: {problem}"), file=sys.stderr)
        rows = write_comparison(runs, options.output, options.target)
        groups, left_out = group_runs(runs)
        for words in [*(f"left out: {text}" for text in left_out), *group_differences(groups)]:
            print(printable(f"fedge: {words}"), file=sys.stderr)
    except OSError as error:
        raise file_error(error, options.output) from error
    if options.csv:
        try:
            write_csv(options.csv, rows)
        except OSError as error:
            raise ConfigError(
                f"--csv must be writable, but {options.csv}: {error.strerror or error}; choose another file"
            ) from error
    if options.format == "text":
        print(*final_lines(rows), sep="\n")
        if (line := choice(rows, runs[0].score)) is not None:
            print(line)
        print(options.output)
    else:
        print(FORMATS[options.format][1](rows))
        print(options.output, file=sys.stderr)
    return 0


def refuse_target(target: float | None, score: "Score") -> None:
    """Raise ConfigError for a target outside the range of a score, or at its worst value."""
    if target is None:
        return
    worst, best = sorted((score.lowest, score.highest), key=score.merit)
    if not (math.isfinite(target) and score.merit(worst) < score.merit(target) <= score.merit(best)):
        raise ConfigError(
            f"--target must be {score.label} better than {worst:g} and at best {best:g}, but is {target:g}; "
            f"omit it for the default"
        )


def _export(options: argparse.Namespace) -> int:
    """Carry out ``fedge export-run``."""
    from fedge.records.export import export_run

    print(export_run(find_run(options.run, options.runs_dir), options.target))
    return 0


def _runs(options: argparse.Namespace) -> int:
    """Carry out ``fedge runs``."""
    from fedge.report.listing import lines, list_runs

    exists = options.runs_dir != _RUNS or _RUNS.exists()  # the default folder may not exist yet
    runs = list_runs(options.runs_dir) if exists else []
    if not runs:
        print(f"no run yet in {options.runs_dir}; start one with `fedge run`", file=sys.stderr)
        return 0
    print(*lines(runs), sep="\n")
    return 0
