"""Where all exchanges of a run pass: messages out, replies in, and the book of the present round.

What goes out and comes back is counted here, and nowhere else: bytes, failures, the time of each exchange.
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
from fedge.rounds.book import RoundBook
from fedge.rounds.hooks import Hooks
from fedge.states.shared import SharedStates
from fedge.timing.laps import LapClock

logger = logging.getLogger(__name__)

_TIMEOUT_S = 3600.0  # as long as nobody says otherwise: Flower's default
_NO_TIME = 1e-9  # seconds per window while nothing is known: the order of clients, and no waiting for it


@dataclass(frozen=True)
class Facilities:
    """What the rounds of a run stand on.

    Attributes:
        clients: who is there.
        round_context: (global round, leaf round) → what clients must know.
        clock: charged throughout the rounds.
        shared: keeps large states in files.
        hooks: are told what happens.
        behind: may be at work until the server takes in what clients have answered.
    """

    clients: Clients
    round_context: Callable[[int, int], RoundContext]
    clock: LapClock
    shared: SharedStates
    hooks: Hooks = field(default_factory=Hooks)
    behind: Behind = field(default_factory=Behind)


class Transport:
    """Carries the messages of a run.

    Attributes:
        clients, shared, hooks: of the run.
        book: of the present global round; of round 0 before the first.
        seconds_per_window: that training took when it was last measured.
        timeout_s: seconds that a client may take for one message.
    """

    def __init__(self, facilities: Facilities, train_samples: Mapping[int, int], retries: int) -> None:
        """Stand ready.

        Args:
            facilities: of the run.
            train_samples: partition id → training windows, by which the largest client is sent to work first.
            retries: how often a message is sent again to a client that failed.
        """
        self.clients = facilities.clients
        self.shared = facilities.shared
        self.hooks = facilities.hooks
        self.book = RoundBook(0)
        self.seconds_per_window = _NO_TIME
        self.timeout_s = _TIMEOUT_S
        self._retries = retries
        self._facilities = facilities
        self._clock = facilities.clock
        self._train_samples = dict(train_samples)
        self._told: set[tuple[int, str]] = set()

    def begin_round(self, global_round: int) -> None:
        """Open the book of a global round."""
        self.book = RoundBook(global_round, began=self._clock.began)

    def context(self, leaf_round: int, line: Line = LEAF) -> RoundContext:
        """Return what clients must know in an exchange of the present global round.

        Args:
            leaf_round: counted through the run; the global round's number where nobody trains.
            line: what trains.
        """
        return replace(self._facilities.round_context(self.book.global_round, leaf_round), line=line)

    def train(self, messages: Sequence[Message], phase: str = "") -> Exchange:
        """Let clients train, the longest first; the arguments as in `evaluate`."""
        return self._exchange(messages, phase, self.seconds_per_window)

    def evaluate(self, messages: Sequence[Message], phase: str = "") -> Exchange:
        """Let clients evaluate.

        Args:
            messages: at most one per client.
            phase: is charged with all of the time, where the exchange is no step of its own.

        Raises:
            RunError: the engine has stopped.
            CheckpointError: the checkpoint of the round before could not be written.
        """
        return self._exchange(messages, phase, _NO_TIME)

    def _exchange(self, messages: Sequence[Message], phase: str, seconds_per_window: float) -> Exchange:
        """Send and receive, keeping the book on bytes, failures and time."""
        self.book.downlink_bytes += total_payload_bytes(messages)
        self.lap(phase or "configure")
        costs_s = {client: count * seconds_per_window for client, count in self._train_samples.items()}
        exchange = self.clients.exchange(
            messages, self.timeout_s, None if phase else self._clock, self._retries,
            self._last_words, costs_s,
        )  # fmt: skip
        self.lap(phase or "check")
        self._facilities.behind.finish()  # it reads what the server is about to change
        self.lap("checkpoint")
        if not phase:  # the timelines are those of the phase "wait"
            self.book.exchanges.append(exchange.times)
        for client, failure in exchange.failures.items():
            self.note_failure(client, failure)
        self.lap(phase or "check")
        return exchange

    def lap(self, phase: str) -> float:
        """Charge the time since the last lap to a phase; return the moment, by the run's clock."""
        return self._clock.lap(phase)

    def finish_round(self) -> dict[str, float]:
        """Return the seconds of the present round, phase by phase."""
        return self._clock.finish()

    def note_failure(self, client: int, failure: Failure) -> None:
        """Keep the first failure of a client in this global round; log it the first time in the run.

        What happens again and again would fill the log; the metrics count it.
        """
        if (client, failure.kind) not in self._told:
            self._told.add((client, failure.kind))
            logger.warning("global round %d: client %d failed: %s", self.book.global_round, client, failure)
        self.book.failures.setdefault(client, failure)

    def _last_words(self, client: int) -> str | None:
        """Return what a client whose worker has died left behind; log where it stood."""
        words = last_words(self.context(0).data_folder, client)
        if words:
            logger.info("client %d stood here when its time was over:\n%s", client, words)
        return words
