"""Pushing messages and pulling replies; a reply is matched to its message by message id only."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from flwr.app import Message

from fedge.exchange.content import node_processes, work_of
from fedge.exchange.engine import Engine
from fedge.process.endings.awake_clock import awake
from fedge.process.endings.watchdog import note_progress, refuse_stalled
from fedge.timing.laps import LapClock
from fedge.timing.timeline import ExchangeTimes

_SWEEP_S = 0.15  # until Flower's engine has picked up pushed messages, every 0.1 s
_ENGINE_CHECK_S = 0.5
RESTART_S = 60.0  # time for a worker to end an overdue client and to restart, on a busy machine

Answer = tuple[Message, Message]
"""A question and its reply."""

Beside = Callable[[Mapping[str, Message]], tuple[list[Answer], list[Message], bool]]
"""Questions that are pending, by id → (those that are lost, each with an error as reply; what to send;
whether there may be more to send, so that the exchange is not over)."""


class MessageStamps:
    """Times at which messages of an exchange were pushed and replies received, and the server's waits."""

    def __init__(self, clock: LapClock) -> None:
        """Take times from `clock`, which measures the phases "push" and "wait"."""
        self._clock = clock
        self._pushed: dict[str, float] = {}
        self._received: dict[str, float] = {}
        self._waits: list[tuple[float, float]] = []

    def push(self, engine: Engine, messages: Sequence[Message]) -> dict[str, Message]:
        """Push messages; returns them by their ids."""
        now = self._clock.now()
        pushed = dict(zip(engine.push_messages(messages), messages, strict=True))
        self._pushed.update(dict.fromkeys(pushed, now))
        return pushed

    def receive(self, replies: Sequence[Message]) -> None:
        """Record the arrival of replies."""
        now = self._clock.now()
        self._received.update(dict.fromkeys([reply.metadata.reply_to_message_id for reply in replies], now))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Charge the body to "wait", and the time before it to "push"."""
        start = self._clock.lap("push")
        yield
        self._waits.append((start, self._clock.lap("wait")))

    def times_of(self, replies: Mapping[int, Message]) -> ExchangeTimes:
        """Times recorded here and by the clients themselves, for partition id → reply."""
        times = ExchangeTimes(self._waits)
        for partition, reply in replies.items():
            work = work_of(reply)
            if work is not None:
                message_id = reply.metadata.reply_to_message_id
                times.add(partition, self._pushed[message_id], self._received[message_id], work)
            if held := node_processes(reply):
                times.held[partition] = held
        return times


def collect(
    engine: Engine,
    waves: Sequence[Sequence[Message]],
    timeout_s: float,
    stamps: MessageStamps | None = None,
    retry: Callable[[Answer], Message | None] | None = None,
    tick: Callable[[], None] = lambda: None,
    check: Beside | None = None,
) -> list[Answer]:
    """Push messages, wave by wave, and pull replies until all are there or `timeout_s` is over.

    With `retry` (reply → a message to send instead, or None) each client has `timeout_s` for itself: the
    engine gives up longer work if it can, and the exchange ends after a silence of this time plus a worker's
    restart. `tick` is called after every poll, at least twice a second, as is `check`, which may give up
    pending messages, add messages, and extend the wait.
    """
    stamps = stamps or MessageStamps(LapClock())
    pending: dict[str, Message] = {}
    for wave in waves:
        if pending:
            with stamps.waiting():  # clients are already working
                time.sleep(_SWEEP_S)
        pending.update(stamps.push(engine, wave))
    with stamps.waiting():
        return _pull(engine, pending, timeout_s, stamps, retry, tick, check)


def _pull(
    engine: Engine,
    pending: dict[str, Message],
    timeout_s: float,
    stamps: MessageStamps,
    retry: Callable[[Answer], Message | None] | None,
    tick: Callable[[], None],
    check: Beside | None,
) -> list[Answer]:
    """Pull the replies to the messages `pending`, by id; the other arguments as for `collect`."""
    collected: list[Answer] = []
    deadline = awake() + timeout_s + (RESTART_S if retry else 0.0)
    next_check = awake() + _ENGINE_CHECK_S
    is_awaited = False  # an absent client that may return
    while pending or is_awaited:
        answers = _match_replies(pending, engine.pull_messages(set(pending)))
        if check is not None:
            lost, messages, is_awaited = check(pending)
            is_awaited |= bool(answers)  # the awaited clients may be among these
            answers += _match_replies(pending, (reply for _, reply in lost))
            pending.update(stamps.push(engine, messages))
        collected.extend(answers)
        if answers:
            note_progress()
            stamps.receive([reply for _, reply in answers])
        now = awake()
        if retry is not None:
            pending.update(stamps.push(engine, [m for m in map(retry, answers) if m is not None]))
            if answers:
                deadline = now + timeout_s + RESTART_S
        tick()
        if not (pending or is_awaited) or now > deadline:
            break
        if now > next_check:
            engine.refuse_stopped()
            if retry is not None:
                engine.give_up_late(timeout_s)
            refuse_stalled()
            next_check = now + _ENGINE_CHECK_S
        if not answers:
            engine.wait(_ENGINE_CHECK_S)
    return collected


def _match_replies(pending: dict[str, Message], replies: Iterable[Message]) -> list[Answer]:
    """Remove messages with a reply from `pending`; replies to anything else are dropped."""
    answers: list[Answer] = []
    for reply in replies:
        question = pending.pop(reply.metadata.reply_to_message_id, None)
        if question is not None:
            answers.append((question, reply))
    return answers
