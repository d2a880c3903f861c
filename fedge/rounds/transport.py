"""All exchanges of a run: messages out, replies in, and the record of the current round.

Bytes, failures and the time of each exchange are counted here and nowhere else.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flwr.app import Message

from fedge.client.guarded_app import last_position
from fedge.exchange.clients import Clients, Exchange
from fedge.exchange.content import total_payload_bytes
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import LEAF, Line, RoundContext
from fedge.process.background_jobs import BackgroundJob
from fedge.rounds.hooks import Hooks
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.measurements.virtual_time import Speeds
from fedge.states.averaging import State
from fedge.states.files import state_bytes
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock

logger = logging.getLogger(__name__)

_TIMEOUT_S = 3600.0  # unless set otherwise: Flower's default
_LARGE_BYTES = 32e6  # bytes of a model below which one more copy does not matter
_SOON_S = 30.0  # approximate longest delay of a round's row
_NO_TIME = 1e-9  # seconds per window before any measurement: orders clients, but allows no waiting


@dataclass(frozen=True)
class RoundServices:
    """Services shared by the rounds of a run.

    Attributes:
        clients: clients of the run.
        round_context: (global round, leaf round) → facts for clients.
        clock: measures the time of phases.
        shared: stores large states in files.
        hooks: receive events.
        background: runner of work in the background while the server waits for replies.
        frozen_bytes: bytes of the model's frozen entries, sent to every client once, in the first round.
        pace: speeds of clients as devices; None if rounds are not timed by devices.
    """

    clients: Clients
    round_context: Callable[[int, int], RoundContext]
    clock: LapClock
    shared: SharedStates
    hooks: Hooks = field(default_factory=Hooks)
    background: BackgroundJob = field(default_factory=BackgroundJob)
    frozen_bytes: int = 0
    pace: Speeds | None = None


class Transport:
    """Carries the messages of a run.

    Attributes:
        clients, shared, hooks: see `RoundServices`.
        book: record of the current global round; of round 0 before the first.
        seconds_per_window: training time per window, by the last measurement.
        train_s: seconds of the latest exchange in which clients trained.
        timeout_s: seconds allowed to a client for one message.
    """

    def __init__(self, facilities: RoundServices, train_samples: Mapping[int, int], retries: int) -> None:
        """Stand ready.

        Args:
            facilities: services of the run.
            train_samples: partition id → number of training windows; the largest client is sent first.
            retries: number of times a message is repeated to a failed client.
        """
        self.clients = facilities.clients
        self.shared = facilities.shared
        self.hooks = facilities.hooks
        self.book = RoundBook(0)
        self.seconds_per_window = _NO_TIME
        self.train_s = 0.0
        self.timeout_s = _TIMEOUT_S
        self._retries = retries
        self._facilities = facilities
        self._clock = facilities.clock
        self._train_samples = dict(train_samples)
        self._logged: set[tuple[int, str]] = set()

    def begin_round(self, global_round: int) -> None:
        """Start the record of a global round."""
        self.book = RoundBook(global_round, began=self._clock.began)
        if global_round == 1:
            self.book.downlink_bytes += self._facilities.frozen_bytes * len(self.clients)

    def context(self, leaf_round: int, line: Line = LEAF, global_round: int | None = None) -> RoundContext:
        """Context of an exchange for clients.

        Args:
            leaf_round: counted over the run; the global round's number if no client trains.
            line: kind of line.
            global_round: global round of the exchange; by default the current one.
        """
        round_number = self.book.global_round if global_round is None else global_round
        return replace(self._facilities.round_context(round_number, leaf_round), line=line)

    def train(self, messages: Sequence[Message], phase: str = "", counted: bool = True) -> Exchange:
        """Let clients train, the longest first; the arguments as for `evaluate`."""
        start = self._clock.now()
        exchange = self._exchange(messages, phase, self.seconds_per_window, counted)
        self.book.asked_clients += len(messages) * counted
        self.train_s = self._clock.now() - start
        return exchange

    def evaluate_and_train(self, messages: Sequence[Message]) -> Exchange:
        """Let clients evaluate and, with a joint message, then train, the longest first.

        Bytes and failures are not recorded, because the missing part of an incomplete reply is requested
        separately.

        Args:
            messages: at most one per client.

        Raises:
            RunError, CheckpointError: as for `evaluate`.
        """
        start = self._clock.now()
        exchange = self._send(messages, "", self.seconds_per_window, retries=0)
        self.train_s = self._clock.now() - start
        for client, failure in exchange.failures.items():
            logger.info("client %d is asked for one thing after the other, not for both: %s", client, failure)
        return exchange

    def evaluate(self, messages: Sequence[Message], phase: str = "", counted: bool = True) -> Exchange:
        """Let clients evaluate.

        Args:
            messages: at most one per client.
            phase: phase charged with the time, if the exchange is not a step itself.
            counted: False if the bytes of the messages are already recorded.

        Raises:
            RunError: the engine has stopped.
            CheckpointError: the previous round's checkpoint could not be written.
        """
        return self._exchange(messages, phase, _NO_TIME, counted)

    def _exchange(
        self, messages: Sequence[Message], phase: str, seconds_per_window: float, counted: bool
    ) -> Exchange:
        """Send and receive, and record bytes, failures and time."""
        if counted:
            self.book.downlink_bytes += total_payload_bytes(messages)
        exchange = self._send(messages, phase, seconds_per_window, self._retries)
        for client, failure in exchange.failures.items():
            self.note_failure(client, failure)
        self.lap(phase or "check")
        return exchange

    def _send(
        self, messages: Sequence[Message], phase: str, seconds_per_window: float, retries: int
    ) -> Exchange:
        """Send and receive, and record the time."""
        self.lap(phase or "configure")
        costs_s = {client: count * seconds_per_window for client, count in self._train_samples.items()}
        exchange = self.clients.exchange(
            messages, self.timeout_s, None if phase else self._clock, retries,
            self._last_output, costs_s,
        )  # fmt: skip
        self.lap(phase or "check")
        self._facilities.background.finish()  # the job's tables and files are about to change
        self.lap("checkpoint")
        if not phase:  # the timelines are those of the phase "wait"
            self.book.exchanges.append(exchange.times)
        return exchange

    @property
    def has_trained_soon(self) -> bool:
        """Whether the latest training was short enough to be combined with an evaluation in one exchange.

        Longer training would delay the next step, and could exceed the clients' timeout.
        """
        return self.train_s <= min(_SOON_S, self.timeout_s / 2)

    def can_hold_replies(self, model: State) -> bool:
        """Whether trained models may be kept until the previous round has its row and checkpoint.

        Large models would cost memory and delay background work more than the exchange saves.
        """
        return not _is_large(model) or self.clients.has_slow_exchanges

    def make_room(self, model: State) -> None:
        """Wait until a checkpoint is written whose large states are about to be replaced."""
        if _is_large(model):
            self._facilities.background.finish()
            self.lap("checkpoint")

    def lap(self, phase: str) -> float:
        """Charge the time since the last lap to a phase; return the current time of the run's clock."""
        return self._clock.lap(phase)

    def finish_round(self) -> dict[str, float]:
        """The seconds of the current round by phase."""
        return self._clock.finish()

    def note_failure(self, client: int, failure: Failure) -> None:
        """Record the first failure of a client in this global round, and log its first in the run.

        Repeated failures would fill the log; they are counted in the metrics.
        """
        if (client, failure.kind) not in self._logged:
            self._logged.add((client, failure.kind))
            logger.warning("global round %d: client %d failed: %s", self.book.global_round, client, failure)
        self.book.failures.setdefault(client, failure)

    def _last_output(self, client: int) -> str | None:
        """Last output of a client whose worker died; the output's file is logged."""
        words = last_position(self.context(0).data_folder, client)
        if words:
            logger.info("client %d stood here when its time was over:\n%s", client, words)
        return words


def _is_large(model: State) -> bool:
    """Whether one more copy of a model matters for memory."""
    return state_bytes(model) > _LARGE_BYTES
