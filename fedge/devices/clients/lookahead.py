"""Real training ahead of the virtual clock.

A device's training depends only on its starting model, which exists when its job starts. A worker therefore
gets the job at once, ahead of all jobs ending later, and the clock waits for its result only when the job
arrives. The order in which workers finish has no influence.
"""

from collections.abc import Mapping
from dataclasses import replace

from flwr.app import ConfigRecord, Message, RecordDict

from fedge.devices.clients.access import ClientAccess
from fedge.devices.clients.algorithms import fill_missing_entries
from fedge.devices.work.jobs import Job
from fedge.exchange.content import ARRAYS, CONFIG
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import RoundContext
from fedge.exchange.schema import ReplyRejected, admit_train
from fedge.exchange.train import TRAIN, TrainReply
from fedge.states.records import record_of


class LookAhead:
    """Lets workers train jobs ahead, and gives a job's result when the clock needs it."""

    def __init__(self, access: ClientAccess, windows: Mapping[int, int]) -> None:
        """Start without jobs.

        Args:
            access: access to the clients; its clock is charged with "configure", "wait" and "check".
            windows: partition id → training windows.
        """
        self._access = access
        self._engine, self._clock = access.waiting.engine, access.waiting.clock
        self._windows = windows
        self._pending: dict[int, tuple[Message, str]] = {}  # job's number → its message, with id
        self._unwanted: set[str] = set()  # ids of messages whose replies are no longer needed
        self._reported: set[int] = set()  # jobs of `_pending` already reported as replied

    def begin(self, job: Job) -> None:
        """Pass a job to the workers."""
        self._drop_unwanted()
        message = self._training_message(job)
        self._pending[job.number] = message, self._engine.push_due(message, job.end_us)

    def _training_message(self, job: Job) -> Message:
        """The message for a device's training."""
        context = self._job_context(job)
        has_means = bool(context.mean)  # means for scaling, for clients owning their windows
        record = context.to_record() if has_means else record_of(ConfigRecord, vars(context))
        content = RecordDict({ARRAYS: job.start.record, CONFIG: record})
        message = Message(content, self._access.clients.node(job.device), TRAIN)
        if self._access.algorithms is not None:
            self._access.algorithms.prepare_job(message, job)
        return message

    def _job_context(self, job: Job) -> RoundContext:
        """Context of a job, with fewer steps if it is shortened."""
        context = self._access.round_contexts(job.period, job.attempt)
        return replace(context, local_steps=job.steps) if job.steps else context

    def forget(self, job: Job) -> None:
        """Discard a job lost after it was passed on, if it was."""
        if job.number in self._pending:
            self._unwanted.add(self._pending.pop(job.number)[1])
        self._drop_unwanted()

    def _drop_unwanted(self) -> None:
        """Discard the replies received for lost jobs."""
        if self._unwanted:
            for message_id in self._engine.wait_for_any(list(self._unwanted), 0.0):
                self._engine.wait_for(message_id, 0.0)
                self._unwanted.discard(message_id)

    def __contains__(self, job: object) -> bool:
        return isinstance(job, Job) and job.number in self._pending

    def arrived(self, timeout_s: float) -> list[int]:
        """Numbers of jobs with replies, each reported once; waits for one, at most `timeout_s` seconds.

        Raises:
            StallError: there was no progress for too long.
        """
        ids = {key: job for job, (_, key) in self._pending.items() if job not in self._reported}
        jobs = [ids[key] for key in self._access.waiting.wait_for_any(list(ids), timeout_s)]
        self._reported.update(jobs)
        return jobs

    def result(self, job: Job) -> TrainReply | Failure:
        """A job's accepted reply, or the failure; waits for it.

        A client that fails is tried again, with the same random stream.
        """
        self._clock.lap("configure")
        message, message_id = self._pending.pop(job.number)
        self._reported.discard(job.number)
        reply = self._access.waiting.reply(message, message_id)
        for _ in range(self._access.config.guard.retries):
            if isinstance(reply, Message):
                break
            message = self._training_message(job)
            reply = self._access.waiting.reply(message, self._engine.push_due(message, -1))
        self._clock.lap("wait")
        if isinstance(reply, Failure):
            return reply
        steps = self._job_context(job).local_steps
        try:
            task = self._access.task(job.start, self._windows[job.device], steps)
            return fill_missing_entries(admit_train(reply, task), job.start)
        except ReplyRejected as error:
            return error.failure
        finally:
            self._clock.lap("check")
