"""Where all exchanges of a run pass: messages out, replies in, and the book of the present round.

Messages are counted here, and nowhere else: bytes, failures, the time of each exchange.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flwr.app import Message

from fedge.client.guarded_app import last_words
from fedge.exchange.clients import Clients, Exchange
from fedge.exchange.content import total_payload_bytes
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import LEAF, Line, RoundContext
from fedge.process.behind import Behind
from fedge.rounds.hooks import Hooks
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.measurements.virtual_time import Speeds
from fedge.states.averaging import State
from fedge.states.files import state_bytes
from fedge.states.shared import SharedStates
from fedge.timing.laps import LapClock

logger = logging.getLogger(__name__)

_TIMEOUT_S = 3600.0  # as long as nobody says otherwise: Flower's default
_LARGE_BYTES = 32e6  # of a model: below, nobody feels one more of them
_SOON_S = 30.0  # approximate longest wait for a round's row
_NO_TIME = 1e-9  # seconds per window while nothing is known: the order of clients, and no waiting for it


@dataclass(frozen=True)
class Facilities:
    """Common services for the rounds of a run.

    Attributes:
        clients: of the run.
        round_context: (global round, leaf round) → facts for clients.
        clock: charged throughout the rounds.
        shared: keeps large states in files.
        hooks: receive events.
        behind: may be at work until the server takes in the clients' answers.
        once_bytes: of the frozen entries of the model, which every client gets once, in the first round.
        pace: of clients as devices; None where rounds take real time only.
    """

    clients: Clients
    round_context: Callable[[int, int], RoundContext]
    clock: LapClock
    shared: SharedStates
    hooks: Hooks = field(default_factory=Hooks)
    behind: Behind = field(default_factory=Behind)
    once_bytes: int = 0
    pace: Speeds | None = None


class Transport:
    """Carries the messages of a run.

    Attributes:
        clients, shared, hooks: of the run.
        book: of the present global round; of round 0 before the first.
        seconds_per_window: of training in the last measurement.
        train_s: seconds of the newest exchange in which clients trained.
        timeout_s: seconds allowed to a client for one message.
    """

    def __init__(self, facilities: Facilities, train_samples: Mapping[int, int], retries: int) -> None:
        """Stand ready.

        Args:
            facilities: of the run.
            train_samples: partition id → training windows, by which the largest client is sent to work first.
            retries: number of repeated messages to a failed client.
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
        self._told: set[tuple[int, str]] = set()

    def begin_round(self, global_round: int) -> None:
        """Open the book of a global round."""
        self.book = RoundBook(global_round, began=self._clock.began)
        if global_round == 1:
            self.book.downlink_bytes += self._facilities.once_bytes * len(self.clients)

    def context(self, leaf_round: int, line: Line = LEAF, global_round: int | None = None) -> RoundContext:
        """Context of an exchange for clients.

        Args:
            leaf_round: counted through the run; the global round's number where nobody trains.
            line: kind of line.
            global_round: of the exchange; by default the present one.
        """
        of_round = self.book.global_round if global_round is None else global_round
        return replace(self._facilities.round_context(of_round, leaf_round), line=line)

    def train(self, messages: Sequence[Message], phase: str = "", counted: bool = True) -> Exchange:
        """Let clients train, the longest first; the arguments as in `evaluate`."""
        began = self._clock.now()
        exchange = self._exchange(messages, phase, self.seconds_per_window, counted)
        self.book.told += len(messages) * counted
        self.train_s = self._clock.now() - began
        return exchange

    def evaluate_and_train(self, messages: Sequence[Message]) -> Exchange:
        """Let clients evaluate, and those of a joint question then train, the longest first.

        Bytes are not counted and failures not noted: clients with incomplete replies are asked for the
        missing part separately.

        Args:
            messages: at most one per client.

        Raises:
            RunError, CheckpointError: as `evaluate`.
        """
        began = self._clock.now()
        exchange = self._sent(messages, "", self.seconds_per_window, retries=0)
        self.train_s = self._clock.now() - began
        for client, failure in exchange.failures.items():
            logger.info("client %d is asked for one thing after the other, not for both: %s", client, failure)
        return exchange

    def evaluate(self, messages: Sequence[Message], phase: str = "", counted: bool = True) -> Exchange:
        """Let clients evaluate.

        Args:
            messages: at most one per client.
            phase: is charged with all of the time, where the exchange is no step of its own.
            counted: False where the bytes of the messages are in the book already.

        Raises:
            RunError: the engine has stopped.
            CheckpointError: the checkpoint of the round before could not be written.
        """
        return self._exchange(messages, phase, _NO_TIME, counted)

    def _exchange(
        self, messages: Sequence[Message], phase: str, seconds_per_window: float, counted: bool
    ) -> Exchange:
        """Send and receive, keeping the book on bytes, failures and time."""
        if counted:
            self.book.downlink_bytes += total_payload_bytes(messages)
        exchange = self._sent(messages, phase, seconds_per_window, self._retries)
        for client, failure in exchange.failures.items():
            self.note_failure(client, failure)
        self.lap(phase or "check")
        return exchange

    def _sent(
        self, messages: Sequence[Message], phase: str, seconds_per_window: float, retries: int
    ) -> Exchange:
        """Send and receive, keeping the book on time."""
        self.lap(phase or "configure")
        costs_s = {client: count * seconds_per_window for client, count in self._train_samples.items()}
        exchange = self.clients.exchange(
            messages, self.timeout_s, None if phase else self._clock, retries,
            self._last_words, costs_s,
        )  # fmt: skip
        self.lap(phase or "check")
        self._facilities.behind.finish()  # the job's tables and files are about to change
        self.lap("checkpoint")
        if not phase:  # the timelines are those of the phase "wait"
            self.book.exchanges.append(exchange.times)
        return exchange

    @property
    def has_trained_soon(self) -> bool:
        """Whether the newest training was short enough for more to be asked in the same exchange.

        To avoid long waits for the next step, and to leave clients time.
        """
        return self.train_s <= min(_SOON_S, self.timeout_s / 2)

    def can_hold_replies(self, model: State) -> bool:
        """Whether trained models may wait at the server until a round has its row and its checkpoint.

        Large ones cost memory, and work not done behind an exchange; worthwhile for exchanges of seconds.
        """
        return not _is_large(model) or self.clients.ask_now_and_then

    def make_room(self, model: State) -> None:
        """Wait for a checkpoint with large states about to be replaced."""
        if _is_large(model):
            self._facilities.behind.finish()
            self.lap("checkpoint")

    def lap(self, phase: str) -> float:
        """Charge the time since the last lap to a phase; return the moment, by the run's clock."""
        return self._clock.lap(phase)

    def finish_round(self) -> dict[str, float]:
        """The seconds of the present round, phase by phase."""
        return self._clock.finish()

    def note_failure(self, client: int, failure: Failure) -> None:
        """Keep the first failure of a client in this global round; logged the first time in the run.

        Repeated events would fill the log; the metrics count them.
        """
        if (client, failure.kind) not in self._told:
            self._told.add((client, failure.kind))
            logger.warning("global round %d: client %d failed: %s", self.book.global_round, client, failure)
        self.book.failures.setdefault(client, failure)

    def _last_words(self, client: int) -> str | None:
        """Last output of a client with a dead worker; its place goes to the log."""
        words = last_words(self.context(0).data_folder, client)
        if words:
            logger.info("client %d stood here when its time was over:\n%s", client, words)
        return words


def _is_large(model: State) -> bool:
    """Whether one model more or less is felt."""
    return state_bytes(model) > _LARGE_BYTES
