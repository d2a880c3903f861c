"""Run folder of a run on the virtual clock: the usual folder, and a folder `devices/` in it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedge.process.durable import write_bytes
from fedge.records.recorder import Recorder
from fedge.records.tables.columns import Table
from fedge.records.tables.device_tables import (
    ARRIVALS,
    DEVICE_TOTALS,
    JOBS,
    STALENESS,
    VERSIONS,
    growing_tables,
)
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Task

if TYPE_CHECKING:
    from fedge.devices.work.ledger import DeviceTotals
    from fedge.devices.world import JobRow
    from fedge.rounds.measurements.moment import VersionRow


class DeviceRecorder(Recorder):
    """Writer of the run folder of a run on a clock."""

    def __init__(
        self,
        folder: Path,
        offsets: Mapping[str, int] | None = None,
        manifest: Mapping[str, Any] | None = None,
        task: Task = CLASSIFICATION,
        is_real: bool = False,
        extra_tables: Sequence[Table] = (),
    ) -> None:
        """Open the tables of `folder`, including arrivals on a real clock; arguments as in `Recorder`."""
        tables = (*growing_tables(task.scores[0], is_real), *extra_tables)
        super().__init__(folder, offsets, manifest, tables, task)

    def write_version(self, row: "VersionRow") -> None:
        """Append an evaluation, flushed by the next `write_round`."""
        self._append(VERSIONS, [row])

    def write_job(self, row: "JobRow") -> None:
        """Append a job, flushed by the next `write_round`."""
        self._append(JOBS, [row])

    def _append(self, table: Table, rows: Sequence[Any]) -> None:
        with self._converting_errors("devices"):
            self._files[table.path].append_rows(rows)

    def write_arrival(self, row: "JobRow") -> None:
        """Append a job ended on the real clock, flushed by the next `write_round`."""
        self._append(ARRIVALS, [row])

    def write_totals(self, devices: Iterable["DeviceTotals"], staleness: Iterable[tuple[int, int]]) -> None:
        """Write devices.csv and staleness.csv.

        Args:
            devices: totals per device, in order.
            staleness: (τ, number of arrivals), in ascending order.

        Raises:
            RecordError: the disk is full or gone.
        """
        with self._converting_errors("devices"):
            for table, rows in ((DEVICE_TOTALS, devices), (STALENESS, staleness)):
                write_bytes(self.folder / table.path, table.text(rows).encode())
