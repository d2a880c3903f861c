"""The cloud's end of the links to leaf servers, which connect and answer its questions.

A leaf server needs no open port: it connects (`fedge.link.dial`) and keeps one stream. Both sides show
certificates of one authority (mutual TLS), and the cloud identifies a leaf by the common name of its
certificate, so no other server can take its place. A server of a deeper tree, with all leaves below it in one
process, shows the certificate of its path, has a stream per leaf, and names the leaf in each hello; a hello
without a leaf asks for the list of leaves. Certificates, the authority and its revocation list are read again
when their files change, so they can be replaced during a run. Of a certificate's streams without a hello,
only the newest few are kept, for a few seconds.

A question is answered by one packet, after any number of progress notes. If the stream breaks, the leaf
reconnects and the question is repeated under its number: a leaf that has already answered it sends the same
answer, and a restarted one computes it again.

The transport is gRPC, a dependency of Flower: streams with flow control, TLS and keep-alive.
"""

import logging
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import grpc  # type: ignore[import-untyped]

from fedge.link.admission import PROCESS, CheckHello, Entrance
from fedge.link.frames import Keep, LinkError, Packet, TruncatedMessageError, chunks_of, packet_of
from fedge.link.reach import fault_of_listening

logger = logging.getLogger(__name__)

SERVICE, METHOD = "fedge.Leaves", "Attach"
WELCOME, NOTE = "welcome", "note"
OVER = "over"  # the last question of a run
BELOW = "below"  # fact of a welcome: the leaves, in answer to a hello without a leaf
NUMBER = "number"  # fact of a question, of its notes and of its answer: its number
OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),  # detects a vanished peer within 50 s
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 30_000),  # in force in gRPC 1.85, not that of keep-alive; default: 60 s
)
_POLL_S = 0.1  # seconds between a waiting thread's checks of its stream
_CLOSE_S = 2.0
_ABSENT_S = 1.0  # wait for a leaf server marked as absent
_MOST_OUTDATED = 1000  # per leaf, as there is no limit to the times it may attach
_MOST_LOGGED = 5  # logged breaks of the link per question


class LeafGone(RuntimeError):
    """A leaf server that did not answer in time. One line."""


class LeafAbsent(LeafGone):
    """A leaf server that is not connected."""


class LeafRefused(LeafGone):
    """Refused answer of a leaf server: unreadable or impossible. One printable line."""


OnNote = Callable[[Packet], bool]
"""Takes a note of a leaf server; returns whether it reports progress. ValueError: an impossible note."""


@dataclass
class _Question:
    """A question sent over one stream.

    Attributes:
        packet: the question.
        on_note: handler of progress notes.
        most: limits in bytes of the answer's arrays, and of its head.
        keep: decides where states of the answer are stored.
        answered: set once there is an answer, or a reason for its absence.
    """

    packet: Packet
    on_note: Callable[[Packet], None]
    most: tuple[int, int]
    keep: Keep
    answered: threading.Event = field(default_factory=threading.Event)
    answer: Packet | None = None
    refused: str = ""

    def refuse(self, reason: str) -> None:
        """Close the question without an answer."""
        self.refused = reason
        self.answered.set()


class _Stream:
    """One attachment of a leaf server, from its hello to its end."""

    def __init__(self, leaf: int, context: grpc.ServicerContext) -> None:
        self.leaf = leaf
        self._context = context
        self._ended = threading.Event()
        self._questions: queue.Queue[_Question | None] = queue.Queue()
        if not context.add_callback(self.end):
            self.end()

    def put(self, question: _Question) -> None:
        """Queue a question."""
        self._questions.put(question)

    @property
    def has_ended(self) -> bool:
        """Whether the stream has ended."""
        return self._ended.is_set()

    def end(self) -> None:
        """End the stream after its current question."""
        self._ended.set()
        self._questions.put(None)

    def cut(self) -> None:
        """End the stream at once."""
        self.end()
        self._context.cancel()

    def serve(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Send questions one by one and receive their answers, until the stream ends."""
        while True:
            question = self._questions.get()
            if question is None or self.has_ended:
                return
            yield from chunks_of(question.packet)
            number = question.packet.facts[NUMBER]
            while not question.answered.is_set():
                try:
                    packet = packet_of(chunks, *question.most, question.keep)
                    if packet is None:
                        return
                    if packet.facts.get(NUMBER) != number:
                        continue
                    if packet.kind == NOTE:
                        question.on_note(packet)
                except TruncatedMessageError:
                    raise
                except (LinkError, ValueError) as error:
                    question.refuse(str(error))
                    return
                if packet.kind != NOTE:
                    question.answer = packet
                    question.answered.set()


class _Deadline:
    """Time to wait for the answer to a question, including reconnections."""

    def __init__(self, timeout_s: float, limit_s: float, on_note: OnNote | None) -> None:
        """Wait at most `timeout_s` in silence, and `limit_s` without progress."""
        self._timeout_s, self._limit_s, self._on_note = timeout_s, limit_s, on_note
        self._last_contact = self._last_progress = time.monotonic()

    def end_silence(self) -> None:
        """Restart the limit for silence."""
        self._last_contact = time.monotonic()

    def note(self, packet: Packet) -> None:
        """Pass on a note; without a handler, a note does not end a silence."""
        if self._on_note is not None:
            self.end_silence()
            if self._on_note(packet):
                self._last_progress = self._last_contact

    @property
    def is_stuck(self) -> bool:
        """Whether there was no progress for too long."""
        return time.monotonic() - self._last_progress > self._limit_s

    def wait(self, question: _Question, stream: _Stream) -> float | None:
        """Wait for the answer, or the end of the stream; returns the limit in seconds if one has passed."""
        while not question.answered.wait(_POLL_S) and not stream.has_ended:
            if time.monotonic() - self._last_contact > self._timeout_s:
                return self._timeout_s
            if self.is_stuck:
                return self._limit_s
        return None


class LeafGate:
    """Listener for leaf servers, and sender of questions to them; a context manager.

    Attributes:
        address: HOST:PORT to listen on.
    """

    def __init__(
        self,
        address: str,
        certificates: Path,
        leaves: int,
        welcome: Packet,
        subtrees: Mapping[str, Sequence[int]] | None = None,
        check: CheckHello = lambda _: None,
    ) -> None:
        """Start listening.

        Args:
            address: HOST:PORT; port 0 selects a free one.
            certificates: folder with ca.crt, cloud.crt and cloud.key, named as by `fedge certs`.
            leaves: number of leaves, numbered from 0.
            welcome: packet sent to every attaching leaf server.
            subtrees: path of a server over leaves, e.g. "1.0" → the leaves below, which it may represent.
            check: check of a hello's content.

        Raises:
            ConfigError: a TLS file is unusable.
            LinkError: the address cannot be listened on.
        """
        if fault := fault_of_listening(address):  # gRPC would print its own message
            raise LinkError(f"{address} cannot be listened on: {fault}")
        self._entrance = Entrance(certificates, leaves, subtrees or {}, check)
        self._welcome = welcome
        self._streams: dict[int, _Stream] = {}
        self._hellos: dict[int, Packet] = {}
        self._names: dict[int, str] = {}  # leaf → name in its certificate
        self._outdated: dict[int, deque[str]] = {}  # leaf → its newest replaced processes
        self._absent_since: dict[int, float] = {}  # monotonic seconds; leaves marked as absent
        self._is_closing = False
        self._changed = threading.Condition()
        self._name, self._numbers = uuid.uuid4().hex, count(1)
        # a stream needs a thread: per leaf the serving one, its replacement, and those without a hello
        self._pool = ThreadPoolExecutor(4 * leaves + self._entrance.most_streams + 2, "leaf-link")
        self._server = grpc.server(self._pool, options=(*OPTIONS, ("grpc.so_reuseport", 0)))
        handler = grpc.stream_stream_rpc_method_handler(self._attach)
        handlers = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
        self._server.add_generic_rpc_handlers((handlers,))
        try:
            port = self._server.add_secure_port(address, self._entrance.credentials())
        except RuntimeError as error:
            raise LinkError(f"{address} cannot be listened on: {error}") from error
        self.address = f"{address.rpartition(':')[0]}:{port}"
        self._server.start()

    def __enter__(self) -> "LeafGate":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all streams: idle ones at once, others after a moment."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            streams = list(self._streams.values())
        for stream in streams:
            stream.end()
        self._server.stop(_CLOSE_S).wait()
        self._pool.shutdown(wait=True)

    def hellos(self) -> dict[int, Packet]:
        """Hello of each attached leaf server, in order."""
        with self._changed:
            return {leaf: self._hellos[leaf] for leaf in sorted(self._streams) if self._is_attached(leaf)}

    def one_process(self, leaves: Iterable[int], fact: str) -> bool:
        """Whether leaf servers are all connected, with one certificate and from one process by their hellos.

        Args:
            leaves: numbers of the leaves.
            fact: fact of a hello with the process's id.
        """
        with self._changed:
            if not all(self._is_attached(leaf) for leaf in leaves):
                return False
            identities = {(self._names[leaf], self._hellos[leaf].facts.get(fact)) for leaf in leaves}
        return len(identities) == 1 and all(isinstance(process, str) for _, process in identities)

    def processes(self, leaves: Iterable[int], fact: str) -> list[list[int]]:
        """Leaves by process, as by `one_process`, in order; any other leaf is in a list of its own.

        Args:
            leaves: numbers of the leaves.
            fact: fact of a hello with the process's id.
        """
        leaves_by_process: dict[tuple[object, ...], list[int]] = {}
        with self._changed:
            for leaf in leaves:
                process = self._hellos[leaf].facts.get(fact) if self._is_attached(leaf) else None
                key = (self._names[leaf], process) if isinstance(process, str) else (leaf,)
                leaves_by_process.setdefault(key, []).append(leaf)
        return list(leaves_by_process.values())

    def mark_absent(self, leaves: Iterable[int]) -> None:
        """Mark leaf servers as absent: the gate does not wait for them until they attach."""
        with self._changed:
            for leaf in leaves:
                if not self._is_attached(leaf):
                    self._absent_since.setdefault(leaf, time.monotonic())

    def ask(
        self,
        leaf: int,
        packet: Packet,
        timeout_s: float,
        on_note: OnNote | None = None,
        limit_s: float = float("inf"),
        most: tuple[int, int] = (2**36, 2**28),
        keep: Keep = lambda state: state,
    ) -> Packet:
        """Send a question to a leaf server and wait for the answer, across reconnections.

        Args:
            leaf: number of the leaf.
            packet: the question.
            timeout_s: seconds for which the leaf may be disconnected, or silent; notes end a silence.
            on_note: called with each progress note, from another thread; None: notes do not end a silence.
            limit_s: limit in seconds without progress, regardless of notes and reconnections.
            most: limits in bytes of the answer's arrays, and of its head.
            keep: decides where states of the answer are stored.

        Raises:
            LeafGone: the leaf did not answer in time (LeafAbsent: it did not connect).
            LeafRefused: its answer cannot be read, or `on_note` refuses a note.
        """
        deadline = _Deadline(timeout_s, limit_s, on_note)
        numbered = replace(packet, facts={**packet.facts, NUMBER: f"{self._name}-{next(self._numbers)}"})
        breaks = 0
        while True:
            stream = self._wait_for_stream(leaf, timeout_s)
            question = _Question(numbered, deadline.note, most, keep)
            deadline.end_silence()
            stream.put(question)
            expired_s = deadline.wait(question, stream)
            if expired_s is not None:
                stream.cut()
                raise LeafGone(f"leaf server {leaf} did not answer within {expired_s:g} s")
            if question.refused:
                stream.cut()
                raise LeafRefused(f"leaf server {leaf}: {question.refused}")
            if question.answer is not None:
                if packet.kind == OVER:
                    stream.end()
                return question.answer
            breaks += 1
            if deadline.is_stuck:
                raise LeafGone(f"the link to leaf server {leaf} broke {breaks} times")
            if breaks <= _MOST_LOGGED:
                logger.warning(
                    "the link to leaf server %d broke; the question is repeated once it is back", leaf
                )

    def _wait_for_stream(self, leaf: int, timeout_s: float) -> _Stream:
        """Stream of a leaf server; waits for its attachment, only briefly if marked as absent."""
        with self._changed:
            wait_s = min(timeout_s, _ABSENT_S) if leaf in self._absent_since else timeout_s
            if not self._changed.wait_for(lambda: self._is_attached(leaf) or self._is_closing, wait_s):
                now = time.monotonic()
                away_s = now - self._absent_since.setdefault(leaf, now - wait_s)
                raise LeafAbsent(
                    f"leaf server {leaf} has been away for {away_s:.0f} s; the run continues without it"
                )
            if not self._is_attached(leaf):
                raise LeafGone(f"leaf server {leaf} is disconnected, and the link is closed")
            return self._streams[leaf]

    def _is_attached(self, leaf: int) -> bool:
        return leaf in self._streams and not self._streams[leaf].has_ended

    def _attach(self, chunks: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Serve a leaf server for the lifetime of its stream."""
        name, hello = self._entrance.admitted(chunks, context)
        leaf = self._entrance.leaf_of_hello(name, hello, context)
        if leaf is None:
            facts = {**self._welcome.facts, BELOW: self._entrance.below(name)}
            yield from chunks_of(replace(self._welcome, facts=facts))
            return
        stream = _Stream(leaf, context)
        self._replace_stream(stream, name, hello, context)
        logger.info("leaf server %d is connected: %s", leaf, context.peer())
        try:
            yield from chunks_of(self._welcome)
            yield from stream.serve(chunks)
        except LinkError as error:
            logger.warning("leaf server %d: %s", leaf, error)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            stream.end()

    def _replace_stream(
        self, stream: _Stream, name: str, hello: Packet, context: grpc.ServicerContext
    ) -> None:
        """Make a stream the leaf's current one; of two processes with one certificate, the newer is kept."""
        leaf, process = stream.leaf, str(hello.facts.get(PROCESS))
        with self._changed:
            outdated = self._outdated.setdefault(leaf, deque(maxlen=_MOST_OUTDATED))
            is_outdated = process in outdated
            if not (is_outdated or self._is_closing):
                previous, previous_hello = self._streams.get(leaf), self._hellos.get(leaf)
                if previous_hello is not None and str(previous_hello.facts.get(PROCESS)) != process:
                    outdated.append(str(previous_hello.facts.get(PROCESS)))
                self._streams[leaf], self._hellos[leaf], self._names[leaf] = stream, hello, name
                self._absent_since.pop(leaf, None)
                self._changed.notify_all()
        if self._is_closing:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the cloud is about to end")
        if is_outdated:
            message = f"another process has taken the place of leaf server {leaf}"
            context.abort(grpc.StatusCode.PERMISSION_DENIED, message)
        if previous is not None and not previous.has_ended:
            logger.warning("leaf server %d has attached again; its new stream replaces the old one", leaf)
            previous.cut()
