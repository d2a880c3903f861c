"""Pages from damaged tables: one line of error instead of an exception in some figure."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fedge.config.registers.option import ConfigError
from fedge.process.escape import printable
from fedge.records.folder import short
from fedge.records.manifest import RunFolderError
from fedge.records.outputs import damaged_tables
from fedge.records.reading.reader import RunData


@contextmanager
def intact_tables(runs: Sequence[RunData]) -> Iterator[None]:
    """Context for making a page from the tables of runs, with an error naming damaged tables.

    Raises:
        RunFolderError: a part of the page cannot be made from the tables.
    """
    try:
        yield
    except (ConfigError, OSError):
        raise
    except Exception as error:  # from polars, Matplotlib or NumPy: rows and columns may be anything
        lines = [
            f"{short(run.folder)}: {line}"
            for run in runs
            for line in (*damaged_tables(run.folder, run.manifest), *run.problems)
        ]
        details = "; ".join([*lines, f"{type(error).__name__}: {error}".strip().splitlines()[0]])
        raise RunFolderError(
            printable(
                f"tables must be as the run wrote them, but {details}; restore them from a copy, or start "
                "the run again"
            )
        ) from error
