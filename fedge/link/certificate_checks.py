"""Checks of certificate and key files: whole, of the right kind, from one authority, and currently valid.

A file of another kind is refused in one line before TLS reads it. Otherwise Flower and gRPC would report an
unreachable peer, and OpenSSL would prompt for the password of an encrypted key.
"""

import os
import re
import ssl
import stat
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from cryptography.x509.oid import NameOID

from fedge.config.registers.option import ConfigError
from fedge.flower import has_one_port
from fedge.process.escape import printable

MOST_BYTES = 2**24  # limit for a file of certificates, a list or a key
CLOCK_TOLERANCE = timedelta(hours=1)  # tolerated difference between machines' clocks
_LONGEST = 200  # characters of a fault
# in a library's messages, about Python's calls
_REFERENCE = re.compile(r" See https?://\S+ for more details\.")
_CURVES = (ec.SECP256R1, ec.SECP384R1)  # known to gRPC
_Files = tuple[Path, Path, Path]


def stamp_of(path: Path) -> tuple[int, ...]:
    """Signs that a file has changed, including replacement by another file and changed permissions.

    Raises:
        OSError: the file's status cannot be read.
    """
    status = path.stat()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def content_of(path: Path) -> bytes:
    """Content of a plain file, never of a pipe or a device.

    Raises:
        ValueError: the path is something else, or the file is too long.
        OSError: the file cannot be read.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a plain file")
        if status.st_size > MOST_BYTES:
            raise ValueError(f"it has {status.st_size} bytes")
        return file.read(MOST_BYTES)


def fault_of(error: Exception) -> str:
    """Fault of a file, in printable words."""
    reason = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
    message = _REFERENCE.sub("", str(reason or error))
    return printable(message[:_LONGEST])


def fault_and_step(error: Exception, otherwise: str) -> str:
    """Fault of a file, and the next step: fix its permissions, or `otherwise` for a damaged file."""
    if not isinstance(error, PermissionError):
        return f"{fault_of(error)}; {otherwise}"
    place = "" if error.filename is None else f" ({Path(error.filename).name})"
    return f"{fault_of(error)}{place}; change its permissions or its folder's (chmod, chown)"


def read_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates of a file, at least one.

    Raises:
        ConfigError: the file has none.
    """
    try:
        certificates = x509.load_pem_x509_certificates(content_of(path))
        for entry in certificates:
            _ = (
                entry.subject,
                entry.issuer,
                entry.not_valid_before_utc,
                entry.not_valid_after_utc,
                entry.extensions,
            )
        return certificates
    except (ValueError, TypeError, OSError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{path} must be a certificate, but: {fault_and_step(error, 'copy it again')}"
        ) from error


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a file.

    Raises:
        ConfigError: the file has none.
    """
    return read_certificates(path)[0]


def refuse_unusable(
    certificate: Path, key: Path, authority: Path, name: str = "", is_client: bool = False
) -> None:
    """Raise ConfigError unless the files are a certificate, its key and its authority, as TLS accepts them.

    Args:
        certificate, key, authority: the files.
        name: required name of the certificate, in case another role's is in its place; empty for any.
        is_client: whether it is shown to a server, by its common name, not to clients.
    """
    for path in (certificate, key, authority):
        _refuse_missing(path)
    chain, roots = read_certificates(certificate), _usable_authority(authority)
    _refuse_outside_validity(certificate, chain[:1])
    if name and name not in (names := _names_of(chain[0], is_client)):
        raise ConfigError(
            f"{certificate} must be the certificate of {name}, but is that of "
            f"{printable(', '.join(names))[:_LONGEST] or 'no server'}; copy {name}.crt and {name}.key"
        )
    try:
        content_of(key)
        ssl.create_default_context(cafile=str(authority))
        _shake_hands(certificate, key)
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"{certificate}, {key.name} and {authority.name} must be a certificate, its key and its "
            f"authority, but: {fault_and_step(error, 'create them again with fedge certs')}"
        ) from error
    if not any(_is_issued_by(member, root) for member in chain for root in roots):
        raise ConfigError(
            f"{certificate} must be signed by {authority.name} beside it, but is not; copy both from the "
            f"folder in which fedge certs made them"
        )
    if name or not has_one_port():
        _refuse_unknown_key(certificate, chain[0])
    _refuse_distrusted(certificate, key, authority, name, is_client)


def _refuse_unknown_key(path: Path, certificate: x509.Certificate) -> None:
    """Raise ConfigError for a key that gRPC does not accept in a handshake; the other end would be silent."""
    key = certificate.public_key()
    is_known = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES)
    if not (is_known or isinstance(key, rsa.RSAPublicKey)):
        kind = f"on {key.curve.name}" if isinstance(key, ec.EllipticCurvePublicKey) else "of another kind"
        raise ConfigError(
            f"{path} must have an RSA key, or one on the curve P-256 or P-384, but its key is {kind}; "
            f"create it again"
        )


def _refuse_distrusted(certificate: Path, key: Path, authority: Path, name: str, is_client: bool) -> None:
    """Raise ConfigError if a peer with this authority would refuse the certificate: by use, chain or name."""
    try:
        _shake_hands(certificate, key, authority, name, is_client)
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{certificate} must be a {'client' if is_client else 'server'}'s certificate under "
            f"{authority.name}, but: {printable(error.verify_message.rstrip('.'))}; create it again with "
            f"fedge certs, or with your authority"
        ) from error


def refuse_unusable_authority(path: Path) -> None:
    """Raise ConfigError unless a file holds a currently valid certificate of an authority."""
    _refuse_missing(path)
    _usable_authority(path)


def refuse_unusable_node_key(path: Path) -> None:
    """Raise ConfigError unless a file is a SuperNode's private key, as ``fedge certs`` makes it."""
    try:
        key = load_ssh_private_key(content_of(path), None)
    except (ValueError, TypeError, OSError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{path} must be a private key of a node, but: {fault_and_step(error, 'copy it again')}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} must be an elliptic curve key, but is not; create it with fedge certs")


def _names_of(certificate: x509.Certificate, is_client: bool) -> list[str]:
    """Names in a certificate: of its subject, and of a server's hosts."""
    names = [
        str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    if is_client:
        return names
    with suppress(x509.ExtensionNotFound):
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names += alternatives.get_values_for_type(x509.DNSName)
    return list(dict.fromkeys(names))


def _usable_authority(path: Path) -> list[x509.Certificate]:
    """Currently valid certificates of an authority."""
    certificates = read_certificates(path)
    now = datetime.now(timezone.utc)
    usable = [root for root in certificates if root.not_valid_before_utc <= now <= root.not_valid_after_utc]
    if not usable:
        _refuse_outside_validity(path, certificates)
    return usable


def _refuse_missing(path: Path) -> None:
    """Raise ConfigError if there is nothing at a path."""
    try:
        path.stat()
    except FileNotFoundError:
        raise ConfigError(
            f"{path} must exist for TLS, but does not; fedge certs creates one for trials"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} must be readable, but: {fault_and_step(error, 'copy it again')}"
        ) from error


def _refuse_outside_validity(path: Path, chain: Sequence[x509.Certificate]) -> None:
    """Raise ConfigError if the first certificate of a file is not valid yet, or has expired."""
    now, first, last = datetime.now(timezone.utc), chain[0].not_valid_before_utc, chain[0].not_valid_after_utc
    if now < first:
        raise ConfigError(
            f"{path} must be valid today, but is not before {first:%Y-%m-%d %H:%M} UTC; correct this "
            f"machine's clock, or create it again with fedge certs"
        )
    if now > last:
        raise ConfigError(
            f"{path} must be valid today, but expired on {last:%Y-%m-%d}; renew it with fedge certs"
        )


def _shake_hands(
    certificate: Path, key: Path, authority: Path | None = None, name: str = "", is_client: bool = False
) -> None:
    """Raise ssl.SSLError unless a key signs for its certificate; a damaged key may look right.

    With an authority, the other end also verifies the certificate: a client the server's, or a server the
    client's.
    """
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(certificate, key, password="")  # given, so OpenSSL never prompts for one
    if authority and not is_client:
        client = ssl.create_default_context(cafile=authority)  # as `fedge.link.reach` verifies servers
    client.check_hostname = bool(authority and name and not is_client)
    client.verify_mode = ssl.CERT_REQUIRED if authority and not is_client else ssl.CERT_NONE
    if authority and is_client:
        client.load_cert_chain(certificate, key, password="")
        server.load_verify_locations(authority)
        server.verify_mode = ssl.CERT_REQUIRED
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(down, up, server_hostname=name or None),
        server.wrap_bio(up, down, server_side=True),
    )
    for end in ends * 2:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()


def _is_issued_by(certificate: x509.Certificate, root: x509.Certificate) -> bool:
    """Whether an authority has signed a certificate; True if its kind of key does not allow the check."""
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, InvalidSignature):
        return False
    except (TypeError, UnsupportedAlgorithm):
        return True
    return True
