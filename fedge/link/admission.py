"""Admission to a gate: certificate names, streams without a hello, and replaced certificate files.

A leaf server shows its own certificate. A server over leaves, all in its own process, shows the certificate
of its path, and names the leaf in each stream's hello; a hello without a leaf asks for the list of leaves.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc  # type: ignore[import-untyped]
from cryptography import x509

from fedge.config.registers.option import ConfigError, shown
from fedge.link.certificate_checks import read_certificate, refuse_unusable, stamp_of
from fedge.link.certificates import AUTHORITY, CLOUD, leaf_name, path_name
from fedge.link.frames import LinkError, Packet, packet_of
from fedge.link.revocations import Revoked
from fedge.process.escape import printable

logger = logging.getLogger(__name__)

HELLO = "hello"
PROCESS = "process"  # fact of a hello: id of the leaf server's process
LEAF = "leaf"  # fact of a hello: the leaf represented by a server over leaves
MOST_SILENT = 2  # streams without a hello, per certificate or leaf below its path
_HELLO_S = 10.0  # limit for the hello, which normally comes at once
_MOST_HELLO_BYTES = 2**24
_LONGEST = 200  # characters of an unknown peer's name, and of a process's id

CheckHello = Callable[[Packet], None]
"""Raises LinkError for a hello whose content is impossible."""


class Entrance:
    """Admission of leaf servers by their certificates."""

    def __init__(
        self,
        folder: Path,
        leaves: int,
        subtrees: Mapping[str, Sequence[int]],
        check: CheckHello = lambda _: None,
    ) -> None:
        """Read the certificate files.

        Args:
            folder: folder with ca.crt, cloud.crt and cloud.key.
            leaves: number of leaves, numbered from 0.
            subtrees: path of a server over leaves → the leaves below, which it may represent.
            check: check of a hello's content.

        Raises:
            ConfigError: a TLS file is unusable.
        """
        self._check = check
        self._leaf_of = {leaf_name(leaf): leaf for leaf in range(leaves)}
        self._subtrees = {path_name(path): tuple(below) for path, below in subtrees.items()}
        self._pending = _PendingStreams()
        self._files = _Files(folder)

    def credentials(self) -> grpc.ServerCredentials:
        """Server credentials, following changes of the files."""
        return self._files.credentials()

    @property
    def most_streams(self) -> int:
        """Number of streams allowed to be open without a hello."""
        return sum(map(self._most_pending, (*self._leaf_of, *self._subtrees)))

    def _most_pending(self, name: str) -> int:
        return MOST_SILENT * max(1, len(self._subtrees.get(name, ())))

    def admitted(self, chunks: Iterator[bytes], context: grpc.ServicerContext) -> tuple[str, Packet]:
        """Certificate name and hello of a new stream; refused streams are ended."""
        name = self._peer_name(context)
        with self._pending.hold(name, context, self._most_pending(name)):
            hello = _read_hello(chunks)
        if hello is None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first packet must be a hello")
            raise AssertionError
        try:
            self._check(hello)
        except LinkError as error:
            logger.warning("%s is not admitted: the hello of %s is refused: %s", context.peer(), name, error)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"its hello is refused: {error}")
        return name, hello

    def below(self, name: str) -> list[int]:
        """Leaves that a certificate may represent."""
        return [self._leaf_of[name]] if name in self._leaf_of else list(self._subtrees[name])

    def leaf_of_hello(self, name: str, hello: Packet, context: grpc.ServicerContext) -> int | None:
        """Leaf of a stream; None if a server over leaves asks for the list of leaves."""
        if name in self._leaf_of:
            return self._leaf_of[name]
        leaf = hello.facts.get(LEAF)
        if leaf is None:
            return None
        if type(leaf) is not int or leaf not in self._subtrees[name]:
            reason = f"leaf {shown(leaf)} is not below {name} in this run's tree"
            logger.warning("%s is not admitted: %s", context.peer(), printable(reason[:_LONGEST]))
            context.abort(grpc.StatusCode.PERMISSION_DENIED, printable(reason[:_LONGEST]))
        assert type(leaf) is int
        return leaf

    def _peer_name(self, context: grpc.ServicerContext) -> str:
        """Certificate name of the peer; streams of unknown or revoked names are ended."""
        auth_context = context.auth_context()
        names = [name.decode(errors="replace") for name in auth_context.get("x509_common_name", [])]
        reason = f"no leaf server of this run: {', '.join(names)}"
        if len(names) == 1 and (names[0] in self._leaf_of or names[0] in self._subtrees):
            if not self._is_revoked(auth_context.get("x509_pem_cert", [])):
                return names[0]
            reason = f"the certificate of {names[0]} was revoked"
        logger.warning("%s is not admitted: %s", context.peer(), printable(reason[:_LONGEST]))
        context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        raise AssertionError

    def _is_revoked(self, pems: Sequence[bytes]) -> bool:
        """Whether a certificate is revoked; an unreadable one counts as revoked."""
        try:
            return any(
                x509.load_pem_x509_certificate(pem).serial_number in self._files.revoked.serials()
                for pem in pems
            )
        except ValueError:
            return True


class _PendingStreams:
    """Streams without a hello, by certificate: only the newest few are kept, for a few seconds."""

    def __init__(self) -> None:
        self._streams: defaultdict[str, list[grpc.ServicerContext]] = defaultdict(list)
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, name: str, context: grpc.ServicerContext, most: int) -> Iterator[None]:
        """Hold a stream until its hello; the oldest of too many is ended, and any after a few seconds."""
        with self._lock:
            self._streams[name].append(context)
            oldest = self._streams[name][0] if len(self._streams[name]) > most else None
            if oldest is not None:
                self._streams[name].remove(oldest)
        if oldest is not None:
            oldest.cancel()
        timer = threading.Timer(_HELLO_S, context.cancel)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock, suppress(ValueError):  # already removed as the oldest of too many
                self._streams[name].remove(context)


def _read_hello(chunks: Iterator[bytes]) -> Packet | None:
    """Hello of a leaf server; None if the packet is no valid hello."""
    try:
        packet = packet_of(chunks, _MOST_HELLO_BYTES, _MOST_HELLO_BYTES)
    except LinkError:
        return None
    if packet is None or packet.kind != HELLO:
        return None
    process = packet.facts.get(PROCESS, "")
    return packet if isinstance(process, str) and len(process) <= _LONGEST else None


class _Files:
    """Certificate of the cloud and the authority, as currently on disk."""

    def __init__(self, folder: Path) -> None:
        """Read the files.

        Raises:
            ConfigError: a file is unusable.
        """
        self._paths = (folder / f"{CLOUD}.crt", folder / f"{CLOUD}.key", folder / f"{AUTHORITY}.crt")
        refuse_unusable(*self._paths, CLOUD)
        self.revoked = Revoked(folder, read_certificate(self._paths[-1]))
        self._loaded = self._reported = self._stamps()
        self._current = self._configuration()

    def credentials(self) -> grpc.ServerCredentials:
        """Server credentials, following changes of the files."""
        return grpc.dynamic_ssl_server_credentials(self._current, self._reload, True)

    def _stamps(self) -> list[tuple[int, ...] | None]:
        return [stamp_of(path) if path.exists() else None for path in self._paths]

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        certificate, key, authority = (path.read_bytes() for path in self._paths)
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def _reload(self) -> grpc.ServerCertificateConfiguration | None:
        """New credentials; None if unchanged. Unusable files are read again later, and reported once."""
        stamps: list[tuple[int, ...] | None] = []
        try:
            stamps = self._stamps()
            if stamps == self._loaded:
                return None
            refuse_unusable(*self._paths, CLOUD)
            configuration, authority = self._configuration(), read_certificate(self._paths[-1])
            if self._stamps() != stamps:  # files are being copied: the next connection reads them again
                return None
        except (ConfigError, OSError) as error:
            if stamps != self._reported:
                logger.warning("certificates have changed, but the previous ones stay in force: %s", error)
            self._reported = stamps
            return None
        self._loaded = self._reported = stamps
        self.revoked.follow(authority)
        logger.info("certificates have changed; the new ones are in use")
        return configuration
