"""The authority's list of revoked certificates, made by ``fedge certs --revoke``.

`revoked.pem` is in the folder of `ca.crt` and signed by the authority (RFC 5280), so it may be copied over
any channel. Servers read the file again after every change.
"""

import logging
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedge.config.registers.option import ConfigError
from fedge.link.certificate_checks import CLOCK_TOLERANCE, content_of, fault_and_step, stamp_of

logger = logging.getLogger(__name__)

FILE = "revoked.pem"
REPLACED = "replaced.txt"  # beside the authority's key: "NAME SERIAL" of each certificate made anew
_DAYS = 3650  # a list stays valid until replaced


def write_list(
    folder: Path, serials: set[int], key: ec.EllipticCurvePrivateKey, authority: x509.Certificate
) -> None:
    """Write the revocation list of a folder: the given serial numbers, and all listed before."""
    now = datetime.now(timezone.utc)
    builder = x509.CertificateRevocationListBuilder(
        issuer_name=authority.subject,
        last_update=now - CLOCK_TOLERANCE,
        next_update=now + timedelta(days=_DAYS),
    )
    for serial in sorted(serials | Revoked(folder, authority).serials()):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    signed = builder.sign(key, hashes.SHA256())
    temporary = folder / f"{FILE}.new"
    temporary.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    temporary.replace(folder / FILE)  # readers see the old or the new list


def note_replaced(folder: Path, name: str, certificate: Path) -> None:
    """Note a certificate that is made anew, so that a later revocation of the name includes it.

    Args:
        folder: the authority's folder.
        name: name of the certificate.
        certificate: its file; one that cannot be read is passed over.
    """
    try:
        serial = x509.load_pem_x509_certificate(content_of(certificate)).serial_number
    except ValueError:
        return
    with open(folder / REPLACED, "a", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(f"{name} {serial:x}\n")


def replaced_serials(folder: Path, name: str) -> set[int]:
    """Serial numbers of a name's certificates before the present one.

    Raises:
        ConfigError: their file was changed.
    """
    file = folder / REPLACED
    if not file.is_file():
        return set()
    try:
        rows = [line.split() for line in file.read_text(encoding="ascii").splitlines()]
        return {int(serial, 16) for named, serial in rows if named == name}
    except ValueError as error:
        raise ConfigError(
            f"{file} must have lines of a name and a serial number in hex, but cannot be read: {error}; "
            f"restore it, or revoke at a new authority, in an empty folder"
        ) from error


class Revoked:
    """Revocation list of a folder, read again after changes; empty if there is no file."""

    def __init__(self, folder: Path, authority: x509.Certificate) -> None:
        """Read the list.

        Raises:
            ConfigError: the file is not a list signed by the authority.
        """
        self._file, self._authority = folder / FILE, authority
        self._stamp: tuple[int, ...] | None = None
        self._reported = ""  # the newest fault, logged once
        self._serials: frozenset[int] = frozenset()
        self._reload()

    def serials(self) -> frozenset[int]:
        """Serial numbers of revoked certificates; the last ones read if the file has become unusable."""
        try:
            self._reload()
            self._reported = ""
        except ConfigError as error:
            if str(error) != self._reported:
                logger.warning("%s; the previous list stays in force", error)
            self._reported = str(error)
        return self._serials

    def follow(self, authority: x509.Certificate) -> None:
        """Expect lists of another authority from now on; the current list is used until there is one."""
        if authority != self._authority:
            self._authority, self._stamp = authority, None

    def _reload(self) -> None:
        """Read a changed file again."""
        try:
            stamp = stamp_of(self._file)
        except FileNotFoundError:  # no revocations yet, or the list was deleted and stays valid
            return
        except OSError as error:
            raise _list_error(self._file, error) from error
        if stamp == self._stamp:
            return
        try:
            listed = x509.load_pem_x509_crl(content_of(self._file))
            self._refuse_not_in_force(listed)
            self._serials = frozenset(entry.serial_number for entry in listed)
        except ConfigError:
            raise
        except (ValueError, TypeError, OSError, UnsupportedAlgorithm) as error:
            raise _list_error(self._file, error) from error
        self._stamp = stamp  # only of a list in force: time may bring another one into it

    def _refuse_not_in_force(self, listed: x509.CertificateRevocationList) -> None:
        """Raise ConfigError for another authority's list, and for one outside its period of validity."""
        if not listed.is_signature_valid(self._authority.public_key()):  # type: ignore[arg-type]
            raise ConfigError(
                f"{self._file} must be signed by the ca.crt beside it, but is not; copy the list "
                f"that came with ca.crt"
            )
        now, first, last = datetime.now(timezone.utc), listed.last_update_utc, listed.next_update_utc
        if now < first:
            raise _list_error(self._file, ValueError(f"it is not in force before {first:%Y-%m-%d %H:%M} UTC"))
        if last is not None and now > last:
            raise _list_error(self._file, ValueError(f"it was to be replaced by {last:%Y-%m-%d}"))


def _list_error(file: Path, fault: Exception) -> ConfigError:
    """Error for an unusable list."""
    return ConfigError(f"{file} must be a revocation list, but: {fault_and_step(fault, 'copy it again')}")
