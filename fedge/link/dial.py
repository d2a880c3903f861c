"""A leaf server's end of its link to the cloud: it connects, answers questions, and reconnects.

One channel lasts as long as the leaf server, and gRPC reconnects it. It is replaced in two cases only: if a
stream is neither welcomed nor ended, as may happen to one opened while its connection was lost; and if a
stream has ended and the certificate files have changed. The answer to the last question is kept until the
next one, so a stream breaking in between costs no work.
"""

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import grpc  # type: ignore[import-untyped]

from fedge.config.registers.option import ConfigError
from fedge.link.admission import LEAF, PROCESS
from fedge.link.certificate_checks import fault_of, refuse_unusable, stamp_of
from fedge.link.certificates import AUTHORITY, CLOUD, leaf_name, path_name
from fedge.link.frames import Keep, LinkError, Packet, chunks_of, packet_of
from fedge.link.gate import METHOD, NOTE, NUMBER, OPTIONS, OVER, SERVICE, WELCOME
from fedge.process.escape import printable

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 3.0
_FLUSH_S = 5.0
_WELCOME_S = 15.0  # the cloud normally answers at once
_POLL_S = 0.2  # seconds between checks for `stop`
_MOST_REPORTS = 10  # printed reasons for a lost contact, until the next welcome
_LONGEST = 200  # characters of the cloud's messages, and of a question's number
_OPTIONS = (
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3000),
    ("grpc.ssl_target_name_override", CLOUD),
    ("grpc.use_local_subchannel_pool", 1),  # gives a new channel its own connection
)
_REFUSALS = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.INVALID_ARGUMENT,
)

_QUESTION_BYTES = (2**36, 2**28)  # bytes of a question's arrays, and of its head

Say = Callable[[str], None]
"""Takes a line for the terminal."""
Note = Callable[[dict[str, Any]], None]
"""Facts that tell how far the answer is."""


class QuestionHandler(Protocol):
    """Handler of the cloud's questions."""

    def hello(self) -> Packet:
        """Hello to send when the link is up."""

    def welcome(self, packet: Packet) -> None:
        """Process the cloud's answer to the hello."""

    def answer(self, packet: Packet, note: Note) -> Packet:
        """Answer to a question; `note` reports progress in the meantime."""


class Refused(RuntimeError):
    """Error: the cloud refuses this leaf server, or is lost. One line."""


class _Backoff:
    """Time since the last contact to the cloud, and the pause before the next attempt."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.pause_s = _FIRST_PAUSE_S
        self._last = time.monotonic()

    def is_too_long(self, had_contact: bool) -> bool:
        """Record whether the cloud was in contact; True once the contact has been lost for too long."""
        if had_contact:
            self.pause_s, self._last = _FIRST_PAUSE_S, time.monotonic()
            return False
        self.pause_s = min(2 * self.pause_s, _LONGEST_PAUSE_S)
        return time.monotonic() - self._last > self.limit_s


class _Outgoing:
    """Chunks of packets on their way to the cloud, few at a time; gRPC's thread takes them one by one."""

    def __init__(self) -> None:
        self.stream_ended = threading.Event()
        self._chunks: queue.Queue[bytes | None] = queue.Queue(maxsize=4)  # None ends them

    def __iter__(self) -> Iterator[bytes]:
        """Yield chunks until the end, waiting for each."""
        while (chunk := self._chunks.get()) is not None:
            yield chunk

    def put(self, packet: Packet) -> None:
        """Add a packet's chunks, waiting for room; chunks left when the stream ends are dropped."""
        for chunk in chunks_of(packet):
            while not self.stream_ended.is_set():
                with suppress(queue.Full):
                    self._chunks.put(chunk, timeout=_POLL_S)
                    break

    def flush(self) -> None:
        """Let the stream end with the chunks added so far, within seconds."""
        with suppress(queue.Full):
            self._chunks.put(None, timeout=_FLUSH_S)
            self.stream_ended.wait(_FLUSH_S)

    def end(self) -> None:
        """End gRPC's thread, even if chunks are left."""
        self.stream_ended.set()
        while True:
            try:
                self._chunks.put_nowait(None)
                break
            except queue.Full:
                with suppress(queue.Empty):  # gRPC's thread may have emptied the queue
                    self._chunks.get_nowait()


class Link:
    """A leaf server's link to the cloud."""

    def __init__(
        self, address: str, certificates: Path, leaf: int | None, path: str = "", say: Say = lambda _: None
    ) -> None:
        """Link, not connected yet.

        Args:
            address: HOST:PORT of the cloud.
            certificates: folder with ca.crt, leaf-N.crt and leaf-N.key, named as by `fedge certs`.
            leaf: number of the leaf; None to ask for the leaves below `path`.
            path: path of a server over leaves, whose certificate is used; empty for the leaf's own.
            say: called with a line for each new reason why the cloud is out of contact.

        Raises:
            ConfigError: a TLS file is unusable.
        """
        self.address = address
        assert path or leaf is not None
        self._files = _OwnFiles(certificates, path_name(path) if path else leaf_name(leaf or 0))
        self._hello_facts = {LEAF: leaf} if path and leaf is not None else {}
        self._process = uuid.uuid4().hex
        self._stopped = threading.Event()
        self._is_over = False
        self._is_silent = False
        self._backoff = _Backoff(0.0)
        self._limits: Callable[[], tuple[int, int]] = lambda: _QUESTION_BYTES
        self._keep: Keep = lambda state: state
        self._say = say
        self._reported: set[str] = set()  # printed reasons for the lost contact
        self._call: Any = None
        self._last: tuple[str, Packet] | None = None  # the newest question's number, and its answer

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End `serve`, from another thread or a signal handler."""
        self._stopped.set()
        if self._call is not None:
            self._call.cancel()

    def serve(
        self,
        handler: QuestionHandler,
        lost_s: float,
        most: Callable[[], tuple[int, int]] = lambda: _QUESTION_BYTES,
        keep: Keep = lambda state: state,
    ) -> None:
        """Answer questions until the cloud ends the run, or `stop` is called.

        Args:
            handler: handler of the questions.
            lost_s: seconds without contact to the cloud after which to give up.
            most: limits in bytes of the next question's arrays and of its head.
            keep: decides where states of a question are stored.

        Raises:
            Refused: the cloud refuses this leaf server, or was out of contact for `lost_s` seconds.
        """
        self._is_over = False
        self._limits, self._keep = most, keep
        self._backoff = _Backoff(lost_s)
        while not (self._stopped.is_set() or self._is_over):
            with grpc.secure_channel(self.address, self._files.credentials(), options=_OPTIONS) as channel:
                self._keep_attached(channel.stream_stream(f"/{SERVICE}/{METHOD}"), handler)

    def _keep_attached(self, attach: Any, handler: QuestionHandler) -> None:
        """Open one stream after another until the run is over, a stream is silent, or the files have changed.

        The pause between streams grows while the cloud is out of contact.
        """
        self._is_silent = False
        while not (self._stopped.is_set() or self._is_over or self._is_silent):
            had_contact = self._serve_stream(attach, handler)
            if self._backoff.is_too_long(had_contact):
                cause = self._files.fault() or "check that it is started, its name, and the firewall"
                raise Refused(
                    f"no contact to the cloud at {self.address} for more than {self._backoff.limit_s:g} s; "
                    f"{cause}"
                )
            if not self._is_over:
                self._stopped.wait(self._backoff.pause_s)
                if self._files.have_changed():
                    return

    def _serve_stream(self, attach: Any, handler: QuestionHandler) -> bool:
        """Serve one stream until its end; returns whether the cloud welcomed it."""
        outgoing = _Outgoing()
        self._call = attach(iter(outgoing))
        if self._stopped.is_set():  # stopped before the call could be cancelled
            self._call.cancel()
        welcomed = threading.Event()
        timer = threading.Timer(_WELCOME_S, self._give_up, [self._call])
        timer.daemon = True
        timer.start()

        def on_welcome() -> None:
            welcomed.set()
            self._reported.clear()
            timer.cancel()

        try:
            if not self._call.add_callback(outgoing.stream_ended.set):  # the call has already ended
                outgoing.stream_ended.set()
            self._exchange(handler, outgoing.put, on_welcome)
        except grpc.RpcError as error:
            self._raise_for_refusal(error)
        except LinkError as error:
            if not self._stopped.is_set():
                logger.warning("the link to the cloud: %s", error)
        finally:
            timer.cancel()
            if self._is_over:
                outgoing.flush()
            outgoing.end()
            self._call.cancel()
        return welcomed.is_set()

    def _exchange(
        self, handler: QuestionHandler, put: Callable[[Packet], None], on_welcome: Callable[[], None]
    ) -> None:
        """Say hello over a stream, and answer its questions until its end or the run's."""
        hello = handler.hello()
        put(replace(hello, facts={**hello.facts, **self._hello_facts, PROCESS: self._process}))
        incoming = self._received_chunks(self._call)
        while not self._is_over:
            packet = packet_of(incoming, *self._limits(), self._keep)
            if packet is None:
                return
            if packet.kind == WELCOME:
                handler.welcome(packet)
                on_welcome()
            else:
                put(self._answer_once(handler, packet, put))
                self._is_over = packet.kind == OVER

    def _give_up(self, call: Any) -> None:
        """End a stream not welcomed."""
        logger.warning(
            "the cloud at %s has not welcomed this leaf for %g s; reconnecting", self.address, _WELCOME_S
        )
        self._report_lost(f"no welcome within {_WELCOME_S:g} s")
        self._is_silent = True
        call.cancel()

    def _received_chunks(self, call: Any) -> Iterator[bytes]:
        """Chunks of a stream until it ends, is given up, or `stop` is called.

        A separate thread reads them, because a gRPC call cancelled while its connection breaks may never end.
        """
        items: queue.Queue[bytes | Exception | None] = queue.Queue(maxsize=4)
        finished = threading.Event()

        def enqueue(item: bytes | Exception | None) -> None:
            while not finished.is_set():
                with suppress(queue.Full):
                    items.put(item, timeout=_POLL_S)
                    break

        def read() -> None:
            try:
                for chunk in call:
                    enqueue(chunk)
            except grpc.RpcError as error:
                enqueue(error)
            else:
                enqueue(None)

        threading.Thread(target=read, name="link", daemon=True).start()
        try:
            while not (self._stopped.is_set() or self._is_silent):
                with suppress(queue.Empty):
                    item = items.get(timeout=_POLL_S)
                    if item is None:
                        return
                    if isinstance(item, Exception):
                        raise item
                    yield item
        finally:
            finished.set()

    def _answer_once(self, handler: QuestionHandler, packet: Packet, put: Callable[[Packet], None]) -> Packet:
        """Answer to a question; a repeated question gets its earlier answer."""
        number = packet.facts.get(NUMBER)
        if not isinstance(number, str) or len(number) > _LONGEST:
            raise LinkError("a question has no number")
        if self._last is None or self._last[0] != number:
            self._last = None
            answer = handler.answer(packet, lambda facts: put(Packet(NOTE, {**facts, NUMBER: number})))
            self._last = number, Packet(answer.kind, {**answer.facts, NUMBER: number}, answer.states)
        return self._last[1]

    def _raise_for_refusal(self, error: Any) -> None:
        """Raise Refused for errors that reconnecting cannot fix."""
        code, details = error.code(), printable((error.details() or "")[:_LONGEST])[:_LONGEST]
        if self._stopped.is_set() or self._is_silent:  # ended here
            return
        if code in _REFUSALS:
            raise Refused(f"the cloud at {self.address} refuses: {details}") from error
        # the cloud closes the connection of an expired certificate, unexplained
        reason = self._files.fault() or _last_words(error.details() or code.name)
        if self._report_lost(reason):
            logger.info("the link to the cloud at %s: %s %s", self.address, code, details)

    def _report_lost(self, reason: str) -> bool:
        """Say why the cloud is out of contact; False if it was said before, or too much was said."""
        if reason in self._reported or len(self._reported) >= _MOST_REPORTS:
            return False
        self._reported.add(reason)
        self._say(f"no contact to the cloud at {self.address} ({reason}); trying again")
        return True


def _last_words(details: str) -> str:
    """Cause at the end of gRPC's chain of causes, which it may follow with the status of another layer.

    >>> _last_words("ipv4:[::1]:9: Tls handshake failed: certificate has expired: OK")
    'certificate has expired'
    >>> _last_words("ipv4:[::1]:9: Delayed close (Socket closed) (sendmsg: Broken pipe (32))")
    'Broken pipe (32)'
    """
    words = details.removesuffix(": OK").rpartition(": ")[2].rstrip("]")
    if words.count(")") > words.count("("):  # opened before the cause
        words = words.removesuffix(")")
    return printable(words)[:_LONGEST]


class _OwnFiles:
    """Certificate and key of a leaf server, and the cloud's authority, as last usable."""

    def __init__(self, folder: Path, name: str) -> None:
        """Read the files.

        Raises:
            ConfigError: a file is unusable.
        """
        self._name = name
        self._paths = (folder / f"{name}.crt", folder / f"{name}.key", folder / f"{AUTHORITY}.crt")
        self._loaded = self._reported = self._stamps()
        self._content = self._read()

    def credentials(self) -> grpc.ChannelCredentials:
        """Client credentials."""
        certificate, key, authority = self._content
        return grpc.ssl_channel_credentials(authority, key, certificate)

    def have_changed(self) -> bool:
        """Whether the files have changed and are usable; unusable files are reported once."""
        if (stamps := self._stamps()) == self._loaded:
            return False
        try:
            content = self._read()
        except ConfigError as error:
            if stamps != self._reported:
                logger.warning("certificates have changed, but the previous ones stay in force: %s", error)
            self._reported = stamps
            return False
        if self._stamps() != stamps:  # files are being copied
            return False
        self._loaded = self._reported = stamps
        if content == self._content:
            return False
        self._content = content
        logger.info("certificates have changed; the new ones are in use")
        return True

    def fault(self) -> str:
        """Reason why the files on disk are unusable now, such as their expiry; empty if they are usable."""
        try:
            self._read()
        except ConfigError as error:
            return str(error)
        return ""

    def _read(self) -> list[bytes]:
        """Contents of the files; ConfigError if they are unusable."""
        refuse_unusable(*self._paths, self._name, is_client=True)
        try:
            return [path.read_bytes() for path in self._paths]
        except OSError as error:  # replaced at this moment
            raise ConfigError(f"{error.filename} must be readable, but: {fault_of(error)}") from error

    def _stamps(self) -> list[tuple[int, ...] | None]:
        stamps: list[tuple[int, ...] | None] = []
        for path in self._paths:
            stamps.append(None)
            with suppress(OSError):
                stamps[-1] = stamp_of(path)
        return stamps
