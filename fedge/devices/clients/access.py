"""Access to a run's real clients from the virtual clock: urgent questions, and replies one by one."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message

from fedge.config.config import Config
from fedge.devices.clients.algorithms import ClockAlgorithms
from fedge.devices.servers.vectors import Version
from fedge.exchange.clients import Clients
from fedge.exchange.engine import LookAheadEngine
from fedge.exchange.failure import Failure, no_reply_within, rejected
from fedge.exchange.round_context import RoundContext, is_of_version
from fedge.exchange.schema import TrainTask
from fedge.process.endings.watchdog import note_progress, refuse_stalled
from fedge.tasks.chosen import task_of
from fedge.timing.laps import LapClock

_LOOK_S = 0.5  # interval of looks after a slow client
_MARGIN_S = 10.0  # for the engine to end a client whose time is over
_AT_ONCE = -2  # before all training

RoundContexts = Callable[[int, int], RoundContext]
"""(global round, leaf round) → what clients must know."""


@dataclass(frozen=True)
class Waiting:
    """Waits for replies one by one, as long as clients may take.

    Attributes:
        engine: delivers messages by urgency.
        timeout_s: seconds allowed to a client for one.
        clock: charged "wait".
        tick: called while nothing comes.
    """

    engine: LookAheadEngine
    timeout_s: float
    clock: LapClock
    tick: Callable[[], None]

    def reply(self, question: Message, message_id: str) -> Message | Failure:
        """The reply to a message, or why there is none.

        Raises:
            StallError: nothing has happened for too long.
        """
        began = self.clock.now()
        while (found := self.engine.wait_for(message_id, _LOOK_S)) is None:
            self._look_after_clients()
            if self.clock.now() - began > self.timeout_s + _MARGIN_S:
                return no_reply_within(self.timeout_s)
        note_progress()
        if found.has_error():
            return self.engine.failure_of(found)
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
        found = self.engine.there_of(message_ids, timeout_s)
        if found:
            note_progress()
        self._look_after_clients()
        return found

    def _look_after_clients(self) -> None:
        """End clients whose time is over, and the run if nothing happens any more."""
        self.engine.give_up_late(self.timeout_s)
        refuse_stalled()
        self.tick()


@dataclass(frozen=True)
class ClientAccess:
    """Access to the clients of a run.

    Attributes:
        waiting: for replies.
        clients: which node holds which partition.
        config: of the run.
        round_contexts: facts for clients.
        variances: non-negative entries of the model.
        algorithms: the leaves' sides of their clients' algorithm; None where options say all.
    """

    waiting: Waiting
    clients: Clients
    config: Config
    round_contexts: RoundContexts
    variances: Collection[str] = ()
    algorithms: ClockAlgorithms | None = None

    def replies(self, questions: Mapping[int, Message]) -> Iterator[tuple[int, Message | Failure]]:
        """Ask clients before all training; yield each with its reply, or why there is none, in order."""
        ids = [self.waiting.engine.push_due(question, _AT_ONCE) for question in questions.values()]
        for (client, question), message_id in zip(questions.items(), ids, strict=True):
            yield client, self.waiting.reply(question, message_id)

    def task(self, start: Version, windows: int, local_steps: int, keeps: bool = True) -> TrainTask:
        """Training asked of a device, against which its reply is checked.

        Args:
            start: its model.
            windows: of its training.
            local_steps: in place of epochs; 0 for epochs.
            keeps: whether a new version of a memory is asked for, if devices have any.
        """
        train = self.config.train
        return TrainTask(
            start.state, windows, train.local_epochs, train.batch_size, self.config.guard.client_timeout,
            tuple(self.variances), least_loss=task_of(train).least_loss, local_steps=local_steps,
            **({} if self.algorithms is None else self.algorithms.task(keeps)),
        )  # fmt: skip
