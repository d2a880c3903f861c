"""Access from the virtual clock to a run's real clients: messages by urgency, and replies one by one."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message

from fedge.config.config import Config
from fedge.devices.clients.algorithms import ClockAlgorithms
from fedge.devices.servers.vectors import Version
from fedge.exchange.clients import Clients
from fedge.exchange.engine import LookAheadEngine
from fedge.exchange.failure import Failure, rejection_failure, timeout_failure
from fedge.exchange.round_context import RoundContext, is_of_version
from fedge.exchange.schema import TrainTask
from fedge.process.endings.watchdog import note_progress, refuse_stalled
from fedge.tasks.configured import task_of
from fedge.timing.laps import LapClock

_POLL_S = 0.5  # interval of checks for slow clients
_MARGIN_S = 10.0  # time for the engine to end a client over its limit
_AT_ONCE = -2  # before all training

RoundContexts = Callable[[int, int], RoundContext]
"""(global round, leaf round) → what clients must know."""


@dataclass(frozen=True)
class Waiting:
    """Waits for single replies, as long as clients may take.

    Attributes:
        engine: delivers messages by urgency.
        timeout_s: seconds allowed to a client for a message.
        clock: charged with "wait".
        tick: called while waiting.
    """

    engine: LookAheadEngine
    timeout_s: float
    clock: LapClock
    tick: Callable[[], None]

    def reply(self, question: Message, message_id: str) -> Message | Failure:
        """The reply to a message, or the failure in its place.

        Raises:
            StallError: there was no progress for too long.
        """
        started = self.clock.now()
        while (reply := self.engine.wait_for(message_id, _POLL_S)) is None:
            self._check_clients()
            if self.clock.now() - started > self.timeout_s + _MARGIN_S:
                return timeout_failure(self.timeout_s)
        note_progress()
        if reply.has_error():
            return self.engine.failure_of(reply)
        if not is_of_version(reply, question):
            return rejection_failure("other version", "of the model that it started from")
        return reply

    def wait_for_any(self, message_ids: Collection[str], timeout_s: float) -> list[str]:
        """Messages with replies; waits for at least one, at most `timeout_s` seconds.

        Raises:
            StallError: there was no progress for too long.
        """
        if not message_ids:
            time.sleep(timeout_s)
            return []
        arrived = self.engine.wait_for_any(message_ids, timeout_s)
        if arrived:
            note_progress()
        self._check_clients()
        return arrived

    def _check_clients(self) -> None:
        """End clients over their time limit, and the run if there is no progress."""
        self.engine.give_up_late(self.timeout_s)
        refuse_stalled()
        self.tick()


@dataclass(frozen=True)
class ClientAccess:
    """Access to the clients of a run.

    Attributes:
        waiting: waits for replies.
        clients: nodes and partitions of clients.
        config: configuration of the run.
        round_contexts: contexts for clients' messages.
        variances: names of non-negative entries of the model.
        algorithms: leaf parts of the clients' algorithm; None if options say everything.
    """

    waiting: Waiting
    clients: Clients
    config: Config
    round_contexts: RoundContexts
    variances: Collection[str] = ()
    algorithms: ClockAlgorithms | None = None

    def replies(self, questions: Mapping[int, Message]) -> Iterator[tuple[int, Message | Failure]]:
        """Send messages ahead of all training; yield each client with its reply or failure, in order."""
        ids = [self.waiting.engine.push_due(question, _AT_ONCE) for question in questions.values()]
        for (client, question), message_id in zip(questions.items(), ids, strict=True):
            yield client, self.waiting.reply(question, message_id)

    def task(self, start: Version, windows: int, local_steps: int, keeps: bool = True) -> TrainTask:
        """The training task of a device, against which its reply is checked.

        Args:
            start: starting model.
            windows: training windows.
            local_steps: number of steps; 0 to train by epochs.
            keeps: whether the device should return a new version of its memory, if it has one.
        """
        train = self.config.train
        return TrainTask(
            start.state, windows, train.local_epochs, train.batch_size, self.config.guard.client_timeout,
            tuple(self.variances), least_loss=task_of(train).least_loss, local_steps=local_steps,
            **({} if self.algorithms is None else self.algorithms.task(keeps)),
        )  # fmt: skip
