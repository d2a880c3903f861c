"""End of a run: written into the manifest and printed on the terminal, once, in any case."""

import logging
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedge.callbacks.calls import CallbackError
from fedge.config.option import ConfigError
from fedge.console.lines import Console
from fedge.exchange.engine import RunError
from fedge.process import exits
from fedge.process.room import remedy
from fedge.process.watchdog import StallError
from fedge.records.folder import short
from fedge.records.recorder import Recorder, RecordError
from fedge.run.remarks import Remarks
from fedge.states.checkpoint import FOLDER, CheckpointError, checkpoints
from fedge.states.files import StateFileError

logger = logging.getLogger(__name__)

_ONE_LINE = (ConfigError, RunError, StallError, RecordError, CheckpointError, StateFileError, CallbackError)


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: "completed", "partial" (a client failed on the way) or "failed".
        folder: the run folder; None when the run was refused.
        reason: why it failed, in one line.
        exit_code: of `fedge.process.exits`; it tells a stalled or interrupted run from others that failed.
    """

    status: str
    folder: Path | None
    reason: str = ""
    exit_code: int = exits.COMPLETED

    def last_line(self, host: str) -> str:
        """Last line of a deployment's server, from which `fedge run` takes the exit code."""
        place = self.folder or "(no run folder)"
        return f"fedge: run {self.status}, exit code {self.exit_code}: {host}:{place}"


class Ending:
    """Writes how the run ended, into the manifest and on the terminal; the first end counts."""

    def __init__(
        self,
        recorder: Recorder,
        console: Console,
        clean_up: Callable[[], None],
        owns_process: bool,
        resume_words: str = "",
    ) -> None:
        self._recorder = recorder
        self._resume_words = resume_words  # further ones of the command by which the run goes on
        self._console = console
        self._clean_up = clean_up
        self._owns_process = owns_process
        self._told = False  # on the terminal, how it failed

    def around(self, work: Callable[[], None], remarks: Remarks) -> Outcome:
        """Carry out `work` and write its end, in any case."""
        try:
            work()
            return self.succeed(remarks)
        except BaseException as error:
            reason = _reason(error)
            if _says_all(error):
                logger.error("the run failed: %s", reason)
            else:
                logger.error("the run failed", exc_info=error)
            outcome = self.fail(_exit_code(error), reason)
            if not isinstance(error, Exception):
                raise
            return outcome

    def fail(self, exit_code: int, reason: str) -> Outcome:
        """End as failed."""
        try:
            outcome = self._write("failed", exit_code, reason=reason)
        except RecordError:  # a full disk: removing temporary files makes room
            self._clean_up()
            try:
                outcome = self._write("failed", exit_code, reason=reason)
            except RecordError as error:
                self._say(f"fedge: {error}")
                outcome = Outcome("failed", self._recorder.folder, reason, exit_code)
        self._tell(outcome)
        return outcome

    def _tell(self, outcome: Outcome) -> None:
        """Print the run's failure and the next step on the terminal."""
        if self._told:
            return
        self._told = True
        self._console.close(failed=True)
        for line in self._failure(outcome.reason, outcome.exit_code):
            self._say(line)

    def _failure(self, reason: str, exit_code: int) -> list[str]:
        """The lines on a run that failed: why, where it lies and, where it can, how it goes on."""
        folder = self._recorder.folder
        lines = [f"fedge: {reason}", f"run folder: {short(folder)} (failed; see run.log)"]
        if "fedge resume" not in reason and checkpoints(folder / FOLDER):
            when = "go on with" if exit_code > 128 else "once the cause is mended, go on with"
            lines.append(f"{when}: fedge resume {shlex.quote(short(folder))}{self._resume_words}")
        return lines

    def succeed(self, remarks: Remarks) -> Outcome:
        """End as completed or, if clients failed on the way, partial."""
        status = "partial" if remarks.any_failed else "completed"
        outcome = self._write(status, exits.BY_STATUS[status], remarks=remarks.lines())
        self._console.close()
        for line in remarks.lines():
            self._console.say(f"note: {line}")
        self._console.say(f"run folder: {short(self._recorder.folder)}")
        return outcome

    def interrupt(self, signum: int) -> None:
        """End by a signal, from its handler: writes only a few bytes."""
        interrupted = exits.Interrupted(signum)
        self._recorder.end("failed", interrupted.exit_code, durably=False, reason=interrupted.reason)
        if not self._told:
            self._told = True
            self._console.last_words(self._failure(interrupted.reason, interrupted.exit_code))

    def give_up(self, reason: str) -> None:
        """End a run that hangs, from another thread; the process ends too, if it is the run's own."""
        self.fail(exits.STALLED, reason)
        self._clean_up()
        if self._owns_process:
            exits.leave_now(exits.STALLED)

    def _write(self, status: str, exit_code: int, **entries: Any) -> Outcome:
        """Write an end and return the one that counts."""
        if self._owns_process:
            stalled = exit_code == exits.STALLED
            limit_s = exits.LEAVE_STALLED_S if stalled else exits.LEAVE_S
            exits.leave_within(limit_s, exit_code, patient=not stalled)
        written = self._recorder.end(status, exit_code, **entries)
        reason = str(written.get("reason", ""))
        return Outcome(written["status"], self._recorder.folder, reason, written["exit_code"])

    def _say(self, text: str) -> None:
        """Write a line on a terminal that may be gone."""
        with suppress(OSError, ValueError):
            self._console.say(text)


def _says_all(error: BaseException) -> bool:
    """Whether an exception was made for the run's user, so that a traceback adds nothing to it."""
    return isinstance(error, ConfigError | RunError | CheckpointError) and error.__cause__ is None


def _exit_code(error: BaseException) -> int:
    """The exit code of a run that an exception ended."""
    interrupted = exits.interrupted_by(error)
    if interrupted:
        return interrupted.exit_code
    return exits.STALLED if isinstance(error, StallError) else exits.FAILED


def _reason(error: BaseException) -> str:
    """Why a run failed, in one line."""
    interrupted = exits.interrupted_by(error)
    if interrupted:
        return interrupted.reason
    if isinstance(error, _ONE_LINE):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return (
            f"the run folder could not be written ({where}{error.strerror or error}); {remedy(error)}, "
            f"or choose another runs-dir"
        ).replace("\n", " ")
    return f"{type(error).__name__}: {error}".replace("\n", " ")
