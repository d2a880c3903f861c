"""End of a run, written to the manifest and printed on the terminal, exactly once."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedge.callbacks.calls import CallbackError
from fedge.config.registers.failing import own_error
from fedge.config.registers.option import ConfigError
from fedge.console.lines import Console
from fedge.exchange.engine import RunError
from fedge.process.endings import exits
from fedge.process.endings.watchdog import StallError
from fedge.process.resources.room import remedy
from fedge.records.folder import resume_command, short
from fedge.records.recorder import Recorder, RecordError
from fedge.run.remarks import Remarks
from fedge.states.checkpoint import FOLDER, CheckpointError, checkpoints
from fedge.states.files import StateFileError

logger = logging.getLogger(__name__)

_ONE_LINE = (ConfigError, RunError, StallError, RecordError, CheckpointError, StateFileError, CallbackError)
_OF_FOLDER = (OSError, CheckpointError, StateFileError)  # errors about files of the run folder


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run.

    Attributes:
        status: "completed", "partial" (some client failed in some round) or "failed".
        folder: the run folder; None if the run was refused.
        reason: reason of a failure, in one line; empty otherwise.
        exit_code: one of `fedge.process.endings.exits`, which distinguishes stalled and interrupted runs.
    """

    status: str
    folder: Path | None
    reason: str = ""
    exit_code: int = exits.COMPLETED

    def last_line(self, host: str) -> str:
        """Last line printed by a deployment's server, from which `fedge run` reads the exit code."""
        folder = self.folder or "(no run folder)"
        return f"fedge: run {self.status}, exit code {self.exit_code}: {host}:{folder}"


class Ending:
    """Writer of a run's end to manifest and terminal; only the first end counts."""

    def __init__(
        self,
        recorder: Recorder,
        console: Console,
        clean_up: Callable[[], None],
        owns_process: bool,
        resume_words: str = "",
        of_script: bool = False,
    ) -> None:
        self._recorder = recorder
        self._resume_words = resume_words  # further arguments of the command to resume the run
        self._of_script = of_script  # whether a part of the run is code from a script, which no command has
        self._console = console
        self._clean_up = clean_up
        self._owns_process = owns_process
        self._has_printed_failure = False  # whether the failure was printed

    def run(self, work: Callable[[], None], remarks: Remarks) -> Outcome:
        """Carry out `work` and write its end, even if it fails."""
        try:
            work()
            return self.succeed(remarks)
        except BaseException as error:
            with exits.uninterrupted():  # a second Ctrl-C waits until the end is written and printed
                reason = _reason(error)
                if _explains_itself(error):
                    logger.error("the run failed: %s", reason)
                else:
                    logger.error("the run failed", exc_info=error)
                outcome = self.fail(_exit_code(error), reason, isinstance(error, _OF_FOLDER))
            if not isinstance(error, (Exception, SystemExit)):  # an interruption, or Flower's end of a run
                raise
            return outcome

    def fail(self, exit_code: int, reason: str, of_folder: bool = False) -> Outcome:
        """End the run as failed.

        Args:
            exit_code: exit code of the run.
            reason: reason of the failure, in one line.
            of_folder: whether it is that the run folder cannot be written, which is then said only once.
        """
        try:
            outcome = self._write("failed", exit_code, reason=reason)
        except RecordError:  # disk full: removing temporary files frees space
            self._clean_up()
            try:
                outcome = self._write("failed", exit_code, reason=reason)
            except RecordError as error:
                if not of_folder:
                    self._print_line(f"fedge: {error}")
                outcome = Outcome("failed", self._recorder.folder, reason, exit_code)
        if outcome.status == "failed":  # otherwise all is done, and only the last lines were interrupted
            self._print_failure(outcome)
        return outcome

    def _print_failure(self, outcome: Outcome) -> None:
        """Print the failure and the next step, once."""
        if self._has_printed_failure:
            return
        self._has_printed_failure = True
        self._console.close(failed=True)
        for line in self._failure_lines(outcome.reason, outcome.exit_code):
            self._print_line(line)

    def _failure_lines(self, reason: str, exit_code: int) -> list[str]:
        """Lines about the run as a failed one."""
        folder = self._recorder.folder
        return failure_lines(folder, reason, exit_code, self._resume_words, self._of_script)

    def succeed(self, remarks: Remarks) -> Outcome:
        """End the run as completed or, if a client failed in some round, as partial."""
        status = "partial" if remarks.any_failed else "completed"
        outcome = self._write(status, exits.BY_STATUS[status], remarks=remarks.lines())
        self._console.close()
        for line in remarks.last_lines():
            self._console.say(f"note: {line}")
        self._console.say(f"run folder: {short(self._recorder.folder)}")
        return outcome

    def interrupt(self, signum: int) -> None:
        """End the run from a signal handler; writes only a few bytes."""
        interrupted = exits.Interrupted(signum)
        self._recorder.end("failed", interrupted.exit_code, durably=False, reason=interrupted.reason)
        if not self._has_printed_failure:
            self._has_printed_failure = True
            self._console.last_words(self._failure_lines(interrupted.reason, interrupted.exit_code))

    def give_up(self, reason: str) -> None:
        """End a stalled run from another thread, and its process, if the process is the run's own."""
        self.fail(exits.STALLED, reason)
        self._clean_up()
        if self._owns_process:
            exits.leave_now(exits.STALLED)

    def _write(self, status: str, exit_code: int, **entries: Any) -> Outcome:
        """Write an end to the manifest; returns the end that counts."""
        if self._owns_process:
            stalled = exit_code == exits.STALLED
            limit_s = exits.LEAVE_STALLED_S if stalled else exits.LEAVE_S
            exits.leave_within(limit_s, exit_code, patient=not stalled)
        entry = self._recorder.end(status, exit_code, **entries)
        reason = str(entry.get("reason", ""))
        return Outcome(entry["status"], self._recorder.folder, reason, entry["exit_code"])

    def _print_line(self, text: str) -> None:
        """Print a line on a possibly closed terminal."""
        with suppress(OSError, ValueError):
            self._console.say(text)


def failure_lines(
    folder: Path, reason: str, exit_code: int, resume_words: str = "", of_script: bool = False
) -> list[str]:
    """Lines about a failed run: the reason, the run folder and, if it has a checkpoint, how to resume."""
    lines = [f"fedge: {reason}", f"run folder: {short(folder)} (failed; see run.log)"]
    if "fedge resume" not in reason and checkpoints(folder / FOLDER):
        instruction = "resume with" if exit_code > 128 else "once the cause is fixed, resume with"
        lines.append(f"{instruction}: {resume_command(folder, resume_words, of_script=of_script)}")
    return lines


def _explains_itself(error: BaseException) -> bool:
    """Whether an exception's message suffices for the user, without a traceback."""
    return isinstance(error, ConfigError | RunError | CheckpointError) and error.__cause__ is None


def _exit_code(error: BaseException) -> int:
    """Exit code of a run ended by an exception."""
    interrupted = exits.find_interruption(error)
    if interrupted:
        return interrupted.exit_code
    return exits.STALLED if isinstance(error, StallError) else exits.FAILED


def _reason(error: BaseException) -> str:
    """Reason for a failure, in one line."""
    interrupted = exits.find_interruption(error)
    if interrupted:
        return interrupted.reason
    if isinstance(error, _ONE_LINE):
        return str(error)
    if isinstance(error, OSError):
        location = f"{error.filename}: " if error.filename else ""
        return (
            f"the run folder could not be written ({location}{error.strerror or error}); {remedy(error)}, "
            f"or choose another runs-dir"
        ).replace("\n", " ")
    return own_error(error)  # with its place, if that is in the user's code
