"""Admission to a gate: certificate names, streams without a hello, and replaced certificate files.

A leaf server shows its own certificate. A server over leaves that runs them all in one process shows the
certificate of its path, and names the leaf in each stream's hello; a hello without a leaf asks for the list
of leaves.
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
from fedge.link.certificates import AUTHORITY, CLOUD, leaf_name, path_name
from fedge.link.frames import LinkError, Packet, packet_of
from fedge.link.revoked import Revoked
from fedge.link.usable import read_certificate, refuse_unusable, stamp_of
from fedge.process.escape import printable

logger = logging.getLogger(__name__)

HELLO = "hello"
PROCESS = "process"  # fact of a hello: id of the leaf server's process
LEAF = "leaf"  # fact of a hello: the leaf that a server over leaves represents
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
        over: Mapping[str, Sequence[int]],
        check: CheckHello = lambda _: None,
    ) -> None:
        """Read the certificate files.

        Args:
            folder: folder with ca.crt, cloud.crt and cloud.key.
            leaves: number of leaves, numbered from 0.
            over: path of a server over leaves → the leaves below, which it may represent.
            check: check of a hello's content.

        Raises:
            ConfigError: a TLS file is unusable.
        """
        self._check = check
        self._leaf_of = {leaf_name(leaf): leaf for leaf in range(leaves)}
        self._over = {path_name(path): tuple(below) for path, below in over.items()}
        self._silent = _Silent()
        self._files = _Files(folder)

    def credentials(self) -> grpc.ServerCredentials:
        """Server credentials that follow changes of the files."""
        return self._files.credentials()

    @property
    def most_streams(self) -> int:
        """Number of streams that may be open without a hello."""
        return sum(map(self._most_silent, (*self._leaf_of, *self._over)))

    def _most_silent(self, name: str) -> int:
        return MOST_SILENT * max(1, len(self._over.get(name, ())))

    def admitted(self, chunks: Iterator[bytes], context: grpc.ServicerContext) -> tuple[str, Packet]:
        """Certificate name and hello of a new stream; streams that are not admitted are ended."""
        name = self._peer_name(context)
        with self._silent.one_more(name, context, self._most_silent(name)):
            hello = _hello(chunks)
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
        return [self._leaf_of[name]] if name in self._leaf_of else list(self._over[name])

    def leaf_of_hello(self, name: str, hello: Packet, context: grpc.ServicerContext) -> int | None:
        """Leaf of a stream; None if a server over leaves asks for the list of leaves."""
        if name in self._leaf_of:
            return self._leaf_of[name]
        leaf = hello.facts.get(LEAF)
        if leaf is None:
            return None
        if type(leaf) is not int or leaf not in self._over[name]:
            why = f"leaf {shown(leaf)} is not below {name} in this run's tree"
            logger.warning("%s is not admitted: %s", context.peer(), printable(why[:_LONGEST]))
            context.abort(grpc.StatusCode.PERMISSION_DENIED, printable(why[:_LONGEST]))
        assert type(leaf) is int
        return leaf

    def _peer_name(self, context: grpc.ServicerContext) -> str:
        """Certificate name of the peer; streams of unknown or revoked names are ended."""
        known = context.auth_context()
        names = [name.decode(errors="replace") for name in known.get("x509_common_name", [])]
        why = f"no leaf server of this run: {', '.join(names)}"
        if len(names) == 1 and (names[0] in self._leaf_of or names[0] in self._over):
            if not self._is_revoked(known.get("x509_pem_cert", [])):
                return names[0]
            why = f"the certificate of {names[0]} was revoked"
        logger.warning("%s is not admitted: %s", context.peer(), printable(why[:_LONGEST]))
        context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
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


class _Silent:
    """Streams without a hello, by certificate: only the newest few are kept, for a few seconds."""

    def __init__(self) -> None:
        self._of: defaultdict[str, list[grpc.ServicerContext]] = defaultdict(list)
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self, name: str, context: grpc.ServicerContext, most: int) -> Iterator[None]:
        """Hold a stream until its hello; the oldest of too many is ended, and any after a few seconds."""
        with self._lock:
            self._of[name].append(context)
            oldest = self._of[name][0] if len(self._of[name]) > most else None
            if oldest is not None:
                self._of[name].remove(oldest)
        if oldest is not None:
            oldest.cancel()
        late = threading.Timer(_HELLO_S, context.cancel)
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()
            with self._lock, suppress(ValueError):  # already removed as the oldest of too many
                self._of[name].remove(context)


def _hello(chunks: Iterator[bytes]) -> Packet | None:
    """Hello of a leaf server; None if the packet is no valid hello."""
    try:
        found = packet_of(chunks, _MOST_HELLO_BYTES, _MOST_HELLO_BYTES)
    except LinkError:
        return None
    if found is None or found.kind != HELLO:
        return None
    process = found.facts.get(PROCESS, "")
    return found if isinstance(process, str) and len(process) <= _LONGEST else None


class _Files:
    """Certificate of the cloud and the authority, as currently on disk."""

    def __init__(self, folder: Path) -> None:
        """Read the files.

        Raises:
            ConfigError: a file is unusable.
        """
        self._names = (folder / f"{CLOUD}.crt", folder / f"{CLOUD}.key", folder / f"{AUTHORITY}.crt")
        refuse_unusable(*self._names, CLOUD)
        self.revoked = Revoked(folder, read_certificate(self._names[-1]))
        self._seen = self._told = self._stamps()
        self._now = self._configuration()

    def credentials(self) -> grpc.ServerCredentials:
        """Server credentials that follow changes of the files."""
        return grpc.dynamic_ssl_server_credentials(self._now, self._changed, True)

    def _stamps(self) -> list[tuple[int, ...] | None]:
        return [stamp_of(path) if path.exists() else None for path in self._names]

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        certificate, key, authority = (path.read_bytes() for path in self._names)
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """New credentials; None if unchanged. Unusable files are read again later, and reported once."""
        stamps: list[tuple[int, ...] | None] = []
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return None
            refuse_unusable(*self._names, CLOUD)
            found, authority = self._configuration(), read_certificate(self._names[-1])
            if self._stamps() != stamps:  # files are being copied: the next connection reads them again
                return None
        except (ConfigError, OSError) as error:
            if stamps != self._told:
                logger.warning("certificates have changed, but the previous ones stay in force: %s", error)
            self._told = stamps
            return None
        self._seen = self._told = stamps
        self.revoked.follow(authority)
        logger.info("certificates have changed; the new ones are in use")
        return found
