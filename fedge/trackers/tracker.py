"""The tracker protocol, a run's description for trackers, and the tracker behind a name.

Each is an optional extra of the package and a module `fedge.trackers.to_NAME`, loaded only on use.
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
    """Description of a run for opening a tracker.

    Attributes:
        folder: of the run; local trackers write below it.
        name: of the folder.
        id: of the run at the tracker, made once and kept when the run goes on; at most 32 letters and digits.
        params: configuration, seed, data.
        resumed: the run is resumed and known to the tracker.
        result: number distinguishing runs: the mean over clients of the task's first score.
    """

    folder: Path
    name: str
    id: str
    params: Mapping[str, Scalar]
    resumed: bool
    result: str = "global/test_accuracy_mean"


class Tracker(Protocol):
    """One run at one tracker. Exceptions of its methods end the tracking and not the run."""

    def log(self, rounds: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Take in the numbers of global rounds, which come in ascending order and each once."""

    def finish(self, status: str, exit_code: int) -> None:
        """Take in how the run ended, "completed", "partial" or "failed", and close."""


def refuse_missing_extra(kind: str) -> None:
    """Raise ConfigError when the package of a tracker is not installed."""
    package = TRACKERS.entry(kind).package
    if package and importlib.util.find_spec(package) is None:
        raise ConfigError(
            f'tracker is "{kind}", but the package {package} is not installed; '
            f"pip install 'fedge[{kind}]', or set tracker=\"none\""
        )


def open_tracker(kind: str, run: TrackedRun, arguments: Mapping[str, Any]) -> Tracker:
    """A tracker that has been told of a run.

    Raises:
        Exception: any of the tracker's library.
    """
    tracker: Tracker = TRACKERS.load(kind)(run, **arguments)
    return tracker
