"""Hook to write the report at the end of a run; its failure never fails the run."""

import logging
import shlex
from collections.abc import Callable
from pathlib import Path

from fedge.process.endings import exits
from fedge.records.folder import short

logger = logging.getLogger(__name__)


def write_report_at_end(folder: Path, say: Callable[[str], None]) -> None:
    """Write the run's report, and print where it is; a signal ends this, and prints what is missing."""
    command = f"fedge report {shlex.quote(short(folder))}"
    not_yet = f"note: the run's report is not written yet; write it with {command}"
    try:
        with exits.finishing(not_yet):
            report = _report(folder)
    except KeyboardInterrupt:
        say(not_yet)
        raise
    if report:
        say(f"report: {short(report)}")
    else:
        say(f"note: no report could be written, see run.log; {command}")


def _report(folder: Path) -> Path | None:
    """Write the run's report; None, with a warning in the log, if it cannot be written."""
    try:
        from fedge.report.run_page import write_report  # loads Matplotlib, only after the run

        return write_report(folder)
    except Exception as error:
        logger.warning(
            "no report.html: %s: %s; retry with `fedge report %s`", type(error).__name__, error, folder
        )
        return None
