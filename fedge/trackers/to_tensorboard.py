"""TensorBoard: event files in ``tensorboard/`` of the run folder.

``tensorboard --logdir runs`` shows all runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from fedge.trackers.tracker import TrackedRun

FOLDER = "tensorboard"


class _TensorBoard:
    """A `Tracker`."""

    def __init__(self, run: TrackedRun) -> None:
        self._writer = SummaryWriter(str(run.folder / FOLDER))
        experiment, session, self._session_end = hparams(
            dict(run.params), {run.result: None}
        )  # key of runs on its page
        if not run.resumed:
            self._add_summary(experiment)
            self._add_summary(session)

    def _add_summary(self, summary: Any) -> None:
        """Write a summary for which the writer has no method."""
        self._writer._get_file_writer().add_summary(summary)

    def log(self, rounds: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Write and flush the numbers, so they are complete after a kill."""
        for global_round, numbers in rounds:
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, global_round)
        self._writer.flush()

    def finish(self, status: str, exit_code: int) -> None:
        """Close the event file."""
        self._writer.add_text("status", f"{status}, exit code {exit_code}")
        if status != "failed":
            self._add_summary(self._session_end)
        self._writer.close()


def open_run(run: TrackedRun) -> _TensorBoard:
    """Open an event file for a run; that of a resumed run is beside the earlier ones."""
    return _TensorBoard(run)
