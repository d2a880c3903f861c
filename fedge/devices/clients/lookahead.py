"""Real training ahead of the virtual clock.

A device's training depends on its starting model, which exists at the start of its job. A worker therefore
gets the job at once, before all jobs with a later end; and the clock stops at an arrival only for this one
result. The workers' progress meanwhile decides nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

from flwr.app import ConfigRecord, Message, RecordDict

from fedge.devices.clients.access import ClientAccess
from fedge.devices.clients.algorithms import filled
from fedge.devices.work.jobs import Job
from fedge.exchange.content import ARRAYS, CONFIG
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import RoundContext
from fedge.exchange.schema import ReplyRejected, admit_train
from fedge.exchange.train import TRAIN, TrainReply
from fedge.states.records import record_of


class LookAhead:
    """Lets jobs be trained, and gives their results when their time has come."""

    def __init__(self, access: ClientAccess, windows: Mapping[int, int]) -> None:
        """Stand ready.

        Args:
            access: to the clients; its clock is charged "configure", "wait" and "check".
            windows: partition id → training windows.
        """
        self._access = access
        self._engine, self._clock = access.waiting.engine, access.waiting.clock
        self._windows = windows
        self._ahead: dict[int, tuple[Message, str]] = {}  # number of a job → its message and the message's id
        self._unwanted: set[str] = set()  # ids of messages whose replies nobody will ask for
        self._told: set[int] = set()  # jobs of `_ahead` already reported as replied

    def begin(self, job: Job) -> None:
        """Give a training job to the workers."""
        self._drop_unwanted()
        message = self._question(job)
        self._ahead[job.number] = message, self._engine.push_due(message, job.end_us)

    def _question(self, job: Job) -> Message:
        """The message for a device's training."""
        context = self._context(job)
        is_told = bool(context.mean)  # how owners of their windows scale them, as a list; no other has any
        record = context.to_record() if is_told else record_of(ConfigRecord, vars(context))
        content = RecordDict({ARRAYS: job.start.record, CONFIG: record})
        message = Message(content, self._access.clients.node(job.device), TRAIN)
        if self._access.algorithms is not None:
            self._access.algorithms.tell(message, job)
        return message

    def _context(self, job: Job) -> RoundContext:
        """Context of a job; fewer steps for a shortened job."""
        found = self._access.round_contexts(job.period, job.attempt)
        return replace(found, local_steps=job.steps) if job.steps else found

    def forget(self, job: Job) -> None:
        """Forget a job lost after its hand-over, if any."""
        if job.number in self._ahead:
            self._unwanted.add(self._ahead.pop(job.number)[1])
        self._drop_unwanted()

    def _drop_unwanted(self) -> None:
        """Drop the received replies to forgotten jobs."""
        if self._unwanted:
            for message_id in self._engine.there_of(list(self._unwanted), 0.0):
                self._engine.wait_for(message_id, 0.0)
                self._unwanted.discard(message_id)

    def __contains__(self, job: object) -> bool:
        return isinstance(job, Job) and job.number in self._ahead

    def arrived(self, timeout_s: float) -> list[int]:
        """Numbers of jobs with replies, each once; waits for one, at most `timeout_s` seconds.

        Raises:
            StallError: nothing has happened for too long.
        """
        ids = {key: job for job, (_, key) in self._ahead.items() if job not in self._told}
        found = [ids[key] for key in self._access.waiting.there_of(list(ids), timeout_s)]
        self._told.update(found)
        return found

    def result(self, job: Job) -> TrainReply | Failure:
        """Trained model of a device, or the reason for refusal; waits for it.

        A failing client is tried again, with the same random stream.
        """
        self._clock.lap("configure")
        message, message_id = self._ahead.pop(job.number)
        self._told.discard(job.number)
        found = self._access.waiting.reply(message, message_id)
        for _ in range(self._access.config.guard.retries):
            if isinstance(found, Message):
                break
            message = self._question(job)
            found = self._access.waiting.reply(message, self._engine.push_due(message, -1))
        self._clock.lap("wait")
        if isinstance(found, Failure):
            return found
        steps = self._context(job).local_steps
        try:
            task = self._access.task(job.start, self._windows[job.device], steps)
            return filled(admit_train(found, task), job.start)
        except ReplyRejected as error:
            return error.failure
        finally:
            self._clock.lap("check")
