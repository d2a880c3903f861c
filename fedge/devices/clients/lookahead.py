"""Real training ahead of the virtual clock.

A device's training depends on its starting model, which exists at the start of its job. A worker therefore
gets the job at once, before all jobs with a later end; and the clock stops at an arrival only for this one
result. The workers' progress meanwhile decides nothing.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from flwr.app import ConfigRecord, Message, RecordDict

from fedge.config.config import Config
from fedge.devices.clients.algorithms import ClockAlgorithms, filled
from fedge.devices.work.jobs import Job
from fedge.exchange.clients import Clients
from fedge.exchange.content import ARRAYS, CONFIG
from fedge.exchange.engine import LookAheadEngine
from fedge.exchange.failure import Failure, no_reply_within, rejected
from fedge.exchange.round_context import RoundContext, is_of_version
from fedge.exchange.schema import ReplyRejected, TrainTask, admit_train
from fedge.exchange.train import TRAIN, TrainReply
from fedge.process.endings.watchdog import note_progress, refuse_stalled
from fedge.states.records import record_of
from fedge.tasks.chosen import task_of
from fedge.timing.laps import LapClock

_LOOK_S = 0.5  # interval of looks after a slow client
_MARGIN_S = 10.0  # for the engine to end a client whose time is over

RoundContexts = Callable[[int, int], RoundContext]
"""(global round, leaf round) → what clients must know."""


class Waiting:
    """Waits for replies one by one, as long as clients may take."""

    def __init__(
        self, engine: LookAheadEngine, timeout_s: float, clock: LapClock, tick: Callable[[], None]
    ) -> None:
        """Wait for clients of an engine.

        Args:
            engine: delivers messages.
            timeout_s: seconds allowed to a client for one.
            clock: charged "wait".
            tick: called while nothing comes.
        """
        self._engine = engine
        self._timeout_s = timeout_s
        self._clock = clock
        self._tick = tick

    def reply(self, question: Message, message_id: str) -> Message | Failure:
        """The reply to a message, or why there is none.

        Raises:
            StallError: nothing has happened for too long.
        """
        began = self._clock.now()
        while (found := self._engine.wait_for(message_id, _LOOK_S)) is None:
            self._engine.give_up_late(self._timeout_s)
            refuse_stalled()
            self._tick()
            if self._clock.now() - began > self._timeout_s + _MARGIN_S:
                return no_reply_within(self._timeout_s)
        note_progress()
        if found.has_error():
            return self._engine.failure_of(found)
        if not is_of_version(found, question):
            return rejected("other version", "of the model that it started from")
        return found

    def there_of(self, message_ids: Collection[str], timeout_s: float) -> list[str]:
        """Messages with replies; waits until one is, at most `timeout_s` seconds.

        Raises:
            StallError: nothing has happened for too long.
        """
        if not message_ids:
            time.sleep(timeout_s)
            return []
        found = self._engine.there_of(message_ids, timeout_s)
        if found:
            note_progress()
        self._engine.give_up_late(self._timeout_s)
        refuse_stalled()
        self._tick()
        return found


class LookAhead:
    """Lets jobs be trained, and gives their results when their time has come."""

    def __init__(
        self,
        engine: LookAheadEngine,
        clients: Clients,
        config: Config,
        round_contexts: RoundContexts,
        windows: Mapping[int, int],
        variances: Collection[str],
        waiting: Waiting,
        clock: LapClock,
        algorithms: ClockAlgorithms | None = None,
    ) -> None:
        """Stand ready.

        Args:
            engine: delivers messages by urgency.
            clients: which node holds which partition.
            config: its sections on training and guard are read.
            round_contexts: facts for clients.
            windows: partition id → training windows.
            variances: non-negative entries of the model.
            waiting: for replies.
            clock: charged "configure", "wait" and "check".
            algorithms: the leaves' sides of their clients' algorithm; None where options say all.
        """
        self._algorithms = algorithms
        self._engine = engine
        self._clients = clients
        self._config = config
        self._round_contexts = round_contexts
        self._windows = windows
        self._variances = tuple(variances)
        self._waiting = waiting
        self._clock = clock
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
        message = Message(content, self._clients.node(job.device), TRAIN)
        if self._algorithms is not None:
            self._algorithms.tell(message, job)
        return message

    def _context(self, job: Job) -> RoundContext:
        """Context of a job; fewer steps for a shortened job."""
        found = self._round_contexts(job.period, job.attempt)
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
        found = [ids[key] for key in self._waiting.there_of(list(ids), timeout_s)]
        self._told.update(found)
        return found

    def result(self, job: Job) -> TrainReply | Failure:
        """Trained model of a device, or the reason for refusal; waits for it.

        A failing client is tried again, with the same random stream.
        """
        self._clock.lap("configure")
        message, message_id = self._ahead.pop(job.number)
        self._told.discard(job.number)
        found = self._waiting.reply(message, message_id)
        for _ in range(self._config.guard.retries):
            if isinstance(found, Message):
                break
            message = self._question(job)
            found = self._waiting.reply(message, self._engine.push_due(message, -1))
        self._clock.lap("wait")
        if isinstance(found, Failure):
            return found
        try:
            return filled(admit_train(found, self._task(job)), job.start)
        except ReplyRejected as error:
            return error.failure
        finally:
            self._clock.lap("check")

    def _task(self, job: Job) -> TrainTask:
        """Task of a device, with its facts."""
        train = self._config.train
        return TrainTask(
            job.start.state, self._windows[job.device], train.local_epochs, train.batch_size,
            self._config.guard.client_timeout, self._variances,
            least_loss=task_of(train).least_loss,
            local_steps=self._context(job).local_steps,
            **({} if self._algorithms is None else self._algorithms.task()),
        )  # fmt: skip
