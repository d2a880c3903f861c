"""Hook to write the report at the end of a run; its failure never fails the run."""

import logging
from pathlib import Path

logger = logging.getLogger(__name__)


def report_at_end(folder: Path) -> Path | None:
    """Write the run's report; None, with a warning in the log, if it cannot be written."""
    try:
        from fedge.report.run_page import write_report  # loads Matplotlib, only after the run

        return write_report(folder)
    except Exception as error:
        logger.warning(
            "no report.html: %s: %s; retry with `fedge report %s`", type(error).__name__, error, folder
        )
        return None
