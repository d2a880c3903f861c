"""Protocol of trackers, description of a run for them, and a tracker by name.

Each tracker is an optional extra of the package and a module `fedge.trackers.to_NAME`, loaded only on use.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedge.config.registers.option import ConfigError, Scalar
from fedge.config.registers.parts import TRACKERS

NONE = "none"


@dataclass(frozen=True)
class TrackedRun:
    """Description of a run for a tracker.

    Attributes:
        folder: run folder, in which local trackers write.
        name: name of the folder.
        id: id of the run at the tracker, kept when the run is resumed; at most 32 letters and digits.
        params: configuration, seed, data.
        resumed: whether the run is resumed and known to the tracker.
        result: name of the number for comparing runs: the mean over clients of the task's first score.
    """

    folder: Path
    name: str
    id: str
    params: Mapping[str, Scalar]
    resumed: bool
    result: str = "global/test_accuracy_mean"


class Tracker(Protocol):
    """One run at one tracker. Exceptions of its methods end the tracking, not the run."""

    def log(self, rounds: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Record the numbers of global rounds, which come in ascending order, each once."""

    def finish(self, status: str, exit_code: int) -> None:
        """Record the end of the run, "completed", "partial" or "failed", and close."""


def refuse_missing_extra(kind: str) -> None:
    """Raise ConfigError if the package of a tracker is not installed."""
    package = TRACKERS.entry(kind).package
    if package and importlib.util.find_spec(package) is None:
        raise ConfigError(
            f'tracker is "{kind}", but the package {package} is not installed; '
            f"pip install 'fedge[{kind}]', or set tracker=\"none\""
        )


def open_tracker(kind: str, run: TrackedRun, arguments: Mapping[str, Any]) -> Tracker:
    """A tracker, opened for a run.

    Raises:
        Exception: any error of the tracker's library.
    """
    tracker: Tracker = TRACKERS.load(kind)(run, **arguments)
    return tracker
