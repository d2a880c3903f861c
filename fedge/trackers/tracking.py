"""Feeding of a tracker in a separate thread, so a hanging or failing tracker cannot affect the run.

Every number is sent once: ``tracker.json`` in the run folder has the number of the last round sent, and is
written before the round is sent. So a run resumed from an earlier round repeats nothing. If the process was
killed in between, the tracker may lack the rounds being sent, several if it is slow, but never has one twice.
"""

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from fedge.config.registers.option import Scalar
from fedge.process.endings.watchdog import note_progress
from fedge.process.escape import read_json
from fedge.records.folder import write_json
from fedge.records.tables.device_tables import growing_tables
from fedge.records.tables.round_tables import GlobalRow, LeafRow, tables_of
from fedge.rounds.measurements.results import RoundResult
from fedge.tasks.configured import scores_of
from fedge.trackers.tracker import NONE, TrackedRun, open_tracker

logger = logging.getLogger(__name__)

STATE = "tracker.json"
FINISH_S = 60.0  # time for a tracker to write or upload the rest after a successful run
FINISH_FAILED_S = 5.0  # the same after a failed or interrupted run
_CONSTANT = ("global_round", "evaluation", "leaf", "num_clients", "train_samples")
_PLACES = ("run-name", "runs-dir", "resume", "report", "tracker", "seed")


def round_numbers(result: RoundResult, seconds: float) -> dict[str, float]:
    """Numbers of a global round, named ``global/<column>`` and ``leaf-<n>/<column>`` after its tables.

    They include ``common-global``, ``common-cluster-<n>`` and ``common-leaf-<n>`` on the common test set;
    ``own-<name>``, and ``own-<name>-unseen`` of unseen clients, for clients' own models; and on the virtual
    clock ``devices/<column>``, from devices/versions.csv: virtual time, versions, updates, staleness and all
    others.

    Text, constants, and values not measured are left out. The round took `seconds`.
    """
    layout = tables_of(result.learned)
    row = layout.rounds.row(GlobalRow(result, seconds))
    tables = [("global", dict(zip(layout.rounds.names, row, strict=True)))]
    for leaf in result.leaves:
        row = layout.leaves.row(LeafRow(result.global_round, leaf))
        tables.append((f"leaf-{leaf.leaf}", dict(zip(layout.leaves.names, row, strict=True))))
    tables += [
        (
            f"common-{scored.model}" if scored.number is None else f"common-{scored.model}-{scored.number}",
            {f"test_{result.learned.scores[0].name}": scored.test_score, "test_loss": scored.test_loss},
        )
        for scored in result.common
    ]
    score = result.learned.scores[0].name
    tables += [
        (
            f"own-{name}{'-unseen' * unseen}",
            {
                f"test_{score}_{statistic}": getattr(spread, statistic)
                for statistic in ("mean", "std", "worst")
            },
        )
        for unseen in (False, True)
        for name, spread in result.over_own_models(unseen).items()
    ]
    if result.moment is not None:
        columns = growing_tables(result.learned.scores[0])[0]
        tables.append(("devices", dict(zip(columns.names, columns.row(result.moment), strict=True))))
    return {
        f"{table}/{column}": float(value)
        for table, row in tables
        for column, value in row.items()
        if column not in _CONSTANT and isinstance(value, int | float) and value == value
    }


def params_of(manifest: Mapping[str, Any]) -> dict[str, Scalar]:
    """Parameters of a run at a tracker: its options, seed, data, engine and version."""
    data = manifest["data"]
    return {
        **{key: value for key, value in manifest["config"].items() if key not in _PLACES},
        "seed": manifest["seed"],
        "engine": manifest["engine"],
        "clients-per-leaf": ",".join(map(str, manifest["clients_per_leaf"])),
        "data.name": data["name"],
        "data.fingerprint": data["fingerprint"][:12],
        "fedge": manifest["versions"]["fedge"],
    }


def _result_name(manifest: Mapping[str, Any]) -> str:
    """Name of the number in `round_numbers` for comparing runs: a mean of their task's first score."""
    return f"global/test_{scores_of(manifest.get('task'))[0][0].name}_mean"


class Tracking:
    """The tracker of one run, or none. All methods except `finish` return at once."""

    def __init__(self, kind: str, folder: Path, arguments: Mapping[str, Any] | None = None) -> None:
        """Tracking by `kind`, one of `config.registers.parts.TRACKERS`; nothing happens before `start`."""
        self._kind = kind
        self._arguments = arguments or {}  # for a user's tracker
        self._folder = folder
        self._jobs: SimpleQueue[_Round | _End] = SimpleQueue()
        self._thread: threading.Thread | None = None  # while it accepts numbers
        self._problem = ""  # reason for its failure

    def start(self, manifest: Mapping[str, Any]) -> None:
        """Open the tracker for the run, new or resumed."""
        if self._kind != NONE:
            self._thread = threading.Thread(
                target=self._run_tracker,
                args=(params_of(manifest), _result_name(manifest)),
                name="tracker",
                daemon=True,
            )
            self._thread.start()

    def observe(self, result: RoundResult, seconds: float) -> list[str]:
        """Pass on a round, which took `seconds`; returns a line for the user if the tracker has failed."""
        if self._thread is not None:
            self._jobs.put((result.global_round, round_numbers(result, seconds)))
        return self._report_failure()

    def finish(self, status: str, exit_code: int, within_s: float) -> list[str]:
        """Pass on the end of the run, and wait for the tracker to write the rest; only the first call counts.

        Args:
            status: "completed", "partial" or "failed".
            exit_code: exit code of the run.
            within_s: seconds allowed, after which the tracker is abandoned.

        Returns:
            Lines for the user if the tracker has failed or is late.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return []
        self._jobs.put(_End(status, exit_code))
        deadline = time.monotonic() + within_s
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(_JOIN_S)
            note_progress()
        if thread.is_alive():
            self._problem = self._problem or f"not done {within_s:g} s after the run"
        return self._report_failure()

    def _report_failure(self) -> list[str]:
        """A line on a failure, once."""
        problem, self._problem = self._problem, ""
        if not problem:
            return []
        self._thread = None
        return [f"tracker {self._kind} failed and the run continues without it: {problem}; see run.log"]

    def _run_tracker(self, params: Mapping[str, Scalar], result: str) -> None:
        """Do the tracker's work, in its own thread."""
        try:
            state = _State(self._folder / STATE, self._kind)
            run = TrackedRun(self._folder, self._folder.name, state.id, params, state.is_known, result)
            state.write()
            tracker = open_tracker(self._kind, run, self._arguments)
            end = None
            while end is None:
                rounds, end = self._take_jobs()
                new = [(number, numbers) for number, numbers in rounds if number > state.global_round]
                if new:
                    state.global_round = new[-1][0]
                    state.write()
                    tracker.log(new)
            tracker.finish(end.status, end.exit_code)
        except BaseException as error:  # some libraries raise SystemExit on errors
            logger.warning("tracker %s failed", self._kind, exc_info=error)
            self._problem = " ".join(f"{type(error).__name__}: {error}".split())[:300]

    def _take_jobs(self) -> "tuple[list[_Round], _End | None]":
        """The waiting rounds, at least one or the end; a slow tracker gets many at a time."""
        rounds: list[_Round] = []
        job = self._jobs.get()
        while not isinstance(job, _End):
            rounds.append(job)
            if self._jobs.empty():
                return rounds, None
            job = self._jobs.get()
        return rounds, job


_JOIN_S = 0.2
_Round = tuple[int, Mapping[str, float]]  # global round, its numbers


@dataclass(frozen=True)
class _End:
    status: str
    exit_code: int


class _State:
    """State of one tracker in ``tracker.json``.

    Attributes:
        id: id of the run at the tracker.
        global_round: last round passed to the tracker.
        is_known: whether the tracker has been opened for the run before.
    """

    def __init__(self, path: Path, kind: str) -> None:
        """Read the state; a missing or damaged file counts as new."""
        self._path, self._kind = path, kind
        self._entries: dict[str, Any] = {}
        self.id, self.global_round, self.is_known = uuid.uuid4().hex, 0, False
        with suppress(OSError, ValueError, TypeError, KeyError):
            self._entries = dict(read_json(path.read_text(encoding="utf-8")))
            entry = self._entries[kind]
            self.id, self.global_round, self.is_known = str(entry["id"]), int(entry["global_round"]), True

    def write(self) -> None:
        """Write the state, beside the entries of other trackers."""
        self._entries[self._kind] = {"id": self.id, "global_round": self.global_round}
        write_json(self._path, self._entries)
