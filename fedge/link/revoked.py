"""The authority's list of certificates that count no more, made by ``fedge certs --revoke``.

`revoked.pem` lies beside `ca.crt` and is signed by the authority, as RFC 5280 has it, so that it may travel
by any way. Servers look at it again whenever the file has changed.
"""

import logging
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedge.config.option import ConfigError

logger = logging.getLogger(__name__)

FILE = "revoked.pem"
_DAYS = 3650  # the list has no other end than a newer one


def write_list(
    folder: Path, serials: set[int], key: ec.EllipticCurvePrivateKey, authority: x509.Certificate
) -> None:
    """Write the list of a folder: those serial numbers and all that were on it before."""
    now = datetime.now(timezone.utc)
    made = x509.CertificateRevocationListBuilder(
        issuer_name=authority.subject, last_update=now, next_update=now + timedelta(days=_DAYS)
    )
    for serial in sorted(serials | Revoked(folder, authority).serials()):
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        made = made.add_revoked_certificate(one)
    signed = made.sign(key, hashes.SHA256())
    new = folder / f"{FILE}.new"
    new.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    new.replace(folder / FILE)  # readers see the one or the other


class Revoked:
    """The list of a folder, looked at again where it has changed; empty where there is none."""

    def __init__(self, folder: Path, authority: x509.Certificate) -> None:
        """Read it.

        Raises:
            ConfigError: there is one that is not the authority's.
        """
        self._file, self._authority = folder / FILE, authority
        self._seen: tuple[int, int] | None = None
        self._serials: frozenset[int] = frozenset()
        self._look()

    def serials(self) -> frozenset[int]:
        """Serial numbers of certificates that count no more; those of before where the list was spoilt."""
        try:
            self._look()
        except ConfigError as error:
            logger.warning("%s; the one before it holds", error)
        return self._serials

    def _look(self) -> None:
        """Read the file again if it has changed."""
        try:
            found = self._file.stat()
        except OSError:  # nothing was ever revoked; a vanished list stays valid
            return
        if (found.st_mtime_ns, found.st_size) == self._seen:
            return
        self._seen = found.st_mtime_ns, found.st_size
        try:
            listed = x509.load_pem_x509_crl(self._file.read_bytes())
        except (ValueError, OSError) as error:
            raise ConfigError(f"{self._file} must be a list of revoked certificates, but: {error}") from error
        if not listed.is_signature_valid(self._authority.public_key()):  # type: ignore[arg-type]
            raise ConfigError(
                f"{self._file} must be signed by the authority beside it, but is by another; bring the one "
                f"that came with ca.crt"
            )
        self._serials = frozenset(one.serial_number for one in listed)
