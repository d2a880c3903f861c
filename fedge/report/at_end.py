"""Hook at the end of a run: the report must never be the reason why a run fails."""

import logging
from pathlib import Path

logger = logging.getLogger(__name__)


def report_at_end(folder: Path) -> Path | None:
    """Write the run's report; None, and a warning in the log, if that cannot be done."""
    try:
        from fedge.report.run_page import write_report  # Matplotlib: not before the run has ended

        return write_report(folder)
    except Exception as error:
        logger.warning(
            "no report.html: %s: %s; `fedge report %s` tries again", type(error).__name__, error, folder
        )
        return None
