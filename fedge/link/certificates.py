"""Certificates and node keys for trials: one authority, who serves, who dials, all in one folder.

    ca.crt, ca.key          the authority that signs all others
    superlink.crt, .key     of a SuperLink; every host that it is reached by is in it
    cloud.crt, .key         of the cloud that leaf servers dial; they know it by the name "cloud"
    leaf-0.crt, .key, …     of leaf servers: shown to the cloud, which knows each by the certificate's common
                            name, and to their own SuperNodes
    node-0, node-0.pub, …   key pairs of SuperNodes, as OpenSSH writes them: what Flower registers

All keys are on NIST's curves (P-256 for TLS, P-384 for nodes, as Flower suggests), unencrypted, and readable
by their owner alone. What is there and good stays, so that leaves, nodes and hosts can be added, and what
has run out is made anew. For anything but a trial use certificates of an authority of your own, with these
names.
"""

import ipaddress
import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedge.config.option import ConfigError

AUTHORITY, SUPERLINK, CLOUD = "ca", "superlink", "cloud"
_CLOCKS_DIFFER = timedelta(hours=1)  # between machines
_AUTHORITY_DAYS = 3650
_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Wanted:
    """What a folder of certificates is to hold.

    Attributes:
        hosts: names and addresses by which servers are reached.
        leaves: leaf servers.
        nodes: SuperNodes.
        days: for which a certificate is valid.
    """

    hosts: Sequence[str] = ("localhost", "127.0.0.1")
    leaves: int = 0
    nodes: int = 0
    days: int = 30


def leaf_name(leaf: int) -> str:
    """Return the common name of a leaf server's certificate, which is that of its files, too."""
    return f"leaf-{leaf}"


def make_certificates(folder: Path, wanted: Wanted) -> list[Path]:
    """Write what is wanted and not there yet; returns the files that were written.

    Raises:
        ConfigError: the folder cannot be written, or its authority cannot be read.
    """
    written: list[Path] = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key, authority = _authority(folder, written)
        servers = [SUPERLINK, CLOUD, *(leaf_name(leaf) for leaf in range(wanted.leaves))]
        for name in servers:
            if not _is_good(folder / f"{name}.crt", wanted.hosts, authority):
                _certify(folder, name, wanted, key, authority, written)
        for node in range(wanted.nodes):
            if not (folder / f"node-{node}.pub").exists():
                _node_keys(folder, f"node-{node}", written)
    except OSError as error:
        raise ConfigError(
            f"the folder of certificates must be writable, but {error.filename or folder}: {error.strerror}; "
            f"choose another"
        ) from error
    return written


def _authority(folder: Path, written: list[Path]) -> tuple[_Key, x509.Certificate]:
    """Return the authority's key and certificate, made now if there are none."""
    key_file, file = folder / f"{AUTHORITY}.key", folder / f"{AUTHORITY}.crt"
    if file.exists() or any(folder.glob("*.crt")):
        return _read_authority(key_file, file)
    key, name = ec.generate_private_key(ec.SECP256R1()), _named("Fedge trial authority")
    made = _builder(name, name, key, _AUTHORITY_DAYS).add_extension(
        x509.BasicConstraints(True, 0), critical=True
    )
    made = made.add_extension(_key_usage(signs_certificates=True), critical=True)
    authority = made.sign(key, hashes.SHA256())
    _write_secret(key_file, _pem_of(key), written)
    _write(file, authority.public_bytes(serialization.Encoding.PEM), written)
    return key, authority


def _read_authority(key_file: Path, file: Path) -> tuple[_Key, x509.Certificate]:
    """Return the key and the certificate of an authority that is there."""
    try:
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        authority = x509.load_pem_x509_certificate(file.read_bytes())
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise ConfigError(
            f"{file} and {key_file.name} must be the authority of `fedge certs`, but cannot be read: "
            f"{error}; choose another folder"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
        raise ConfigError(f"{key_file} must be the key of {file.name}, but is another; choose another folder")
    return key, authority


def _is_good(file: Path, hosts: Sequence[str], authority: x509.Certificate) -> bool:
    """Tell whether a certificate with its key is there, names all hosts and is valid for an hour at least."""
    if not (file.exists() and file.with_suffix(".key").exists()):
        return False
    try:
        found = x509.load_pem_x509_certificate(file.read_bytes())
        found.verify_directly_issued_by(authority)
        named = set(found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    lasts = found.not_valid_after_utc > datetime.now(timezone.utc) + _CLOCKS_DIFFER
    return lasts and named >= {_alternative(host) for host in hosts}


def _certify(
    folder: Path, name: str, wanted: Wanted, key: _Key, authority: x509.Certificate, written: list[Path]
) -> None:
    """Write the key and the certificate of one server, which is a client elsewhere."""
    own = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([_alternative(host) for host in (*wanted.hosts, name)])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    made = (
        _builder(_named(name), authority.subject, own, wanted.days)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    _write_secret(folder / f"{name}.key", _pem_of(own), written)
    signed = made.sign(key, hashes.SHA256())
    _write(folder / f"{name}.crt", signed.public_bytes(serialization.Encoding.PEM), written)


def _builder(subject: x509.Name, issuer: x509.Name, key: _Key, days: int) -> x509.CertificateBuilder:
    """Return what all certificates have in common."""
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    """Return an address or a name as a certificate has it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(
            f"--hosts must be names or addresses, but one is {host!r}; write them as 127.0.0.1,cloud.local"
        ) from error


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates,
        crl_sign=signs_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _node_keys(folder: Path, name: str, written: list[Path]) -> None:
    """Write a SuperNode's key pair as OpenSSH does."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write_secret(folder / name, private, written)
    _write(folder / f"{name}.pub", public + b"\n", written)


def _pem_of(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_secret(path: Path, content: bytes, written: list[Path]) -> None:
    """Write a file that nobody else may read at any moment."""

    def private(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_EXCL, 0o600)

    path.unlink(missing_ok=True)  # of an attempt that ended half way, or of a certificate that is made anew
    _write(path, content, written, private)


def _write(
    path: Path, content: bytes, written: list[Path], opener: Callable[[str, int], int] | None = None
) -> None:
    with open(path, "wb", opener=opener) as file:
        file.write(content)
    written.append(path)


def refuse_unusable(certificate: Path, key: Path, authority: Path) -> None:
    """Raise ConfigError unless three files are a certificate, its key and who has signed it."""
    for path in (certificate, key, authority):
        if not path.is_file():
            raise ConfigError(f"{path} must be there for TLS, but is not; fedge certs makes it for a trial")
    try:
        ssl.create_default_context(cafile=str(authority)).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"{certificate}, {key.name} and {authority.name} must be a certificate, its key and its "
            f"authority, but: {error}; make them anew with fedge certs"
        ) from error
