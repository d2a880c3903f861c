"""Certificates and node keys for trials: one authority, servers and clients, all in one folder.

    ca.crt, ca.key              the authority signing all others; ca.key stays where it was created
    superlink.crt, .key         of a SuperLink: a server, by its own hosts
    cloud.crt, .key             of the cloud: a server, by its own hosts and the name "cloud"
    leaf-0.crt, .key, …         of leaf servers as the cloud's clients, identified by the common name
    server-1.crt, .key, …       of servers over leaves, by path: a client running all leaves below it
    leaf-0-server.crt, .key, …  of leaf servers as servers of SuperNodes, by their own hosts
    node-0, node-0.pub, …       key pairs of SuperNodes, as OpenSSH writes them, for Flower to register
    revoked.pem                 the authority's list of revoked certificates, once there is one

A certificate is for one role: it names only the hosts of its server, and is valid for a server or for a
client, never for both (extended key usage). So one machine's key cannot be used on another.

All keys are on NIST's curves (P-256 for TLS, P-384 for nodes, as Flower suggests), unencrypted, and readable
only by their owner. Valid files are kept, so leaves, nodes and hosts can be added; files that have expired,
or have less than a third of their days left, are replaced. For anything but a trial, use certificates of your
own authority, with these names and uses.
"""

import ipaddress
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedge.config.registers.option import ConfigError, shown
from fedge.link.certificate_checks import CLOCK_TOLERANCE, read_certificate
from fedge.link.revocations import note_replaced, replaced_serials, write_list

AUTHORITY, SUPERLINK, CLOUD = "ca", "superlink", "cloud"
HERE = ("localhost", "127.0.0.1")  # names by which any server is reached from its own machine
_AUTHORITY_DAYS = 3650
_CLIENT = re.compile(r"leaf-[0-9]+|server-[0-9.]+")
_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class CertificateRequest:
    """Wanted contents of a folder of certificates.

    Attributes:
        hosts: role (superlink, cloud, leaf-0, …) → names and addresses of the server; `HERE` is added for its
            own machine.
        leaves: number of leaf servers.
        nodes: number of SuperNodes.
        days: days of validity.
        paths: servers over leaves, e.g. "1.0", with all leaves below in one process.
    """

    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    leaves: int = 0
    nodes: int = 0
    days: int = 30
    paths: Sequence[str] = ()


def leaf_name(leaf: int) -> str:
    """Common name of a leaf server's certificate as the cloud's client, and name of its files."""
    return f"leaf-{leaf}"


def path_name(path: str) -> str:
    """Common name of the certificate of a server over leaves as the cloud's client, and name of its files.

    >>> path_name("1.0")
    'server-1.0'
    """
    return f"server-{path}"


def server_name(leaf: int) -> str:
    """Common name of a leaf server's certificate as a server of SuperNodes, and name of its files."""
    return f"leaf-{leaf}-server"


def name_needed(file: str) -> str:
    """Required name of a file's certificate: the cloud's, and its clients'; empty for any.

    >>> name_needed("leaf-0"), name_needed("superlink")
    ('leaf-0', '')
    """
    return file if file == CLOUD or is_client(file) else ""


def is_client(file: str) -> bool:
    """Whether a file's certificate is shown to the cloud, as a leaf server's or a server's over leaves."""
    return _CLIENT.fullmatch(file) is not None


@dataclass(frozen=True)
class _Role:
    """Role of one certificate.

    Attributes:
        name: common name, and name of the files.
        hosts: hosts of a server; empty for a client.
        is_server: whether the role is a server's.
    """

    name: str
    hosts: tuple[str, ...]
    is_server: bool

    @property
    def alternatives(self) -> list[x509.GeneralName]:
        """Names and addresses in the certificate; only the cloud's includes its role name."""
        own_names = (*HERE, *((CLOUD,) if self.name == CLOUD else ())) if self.is_server else ()
        return [_general_name(host) for host in dict.fromkeys((*self.hosts, *own_names))]

    @property
    def usage(self) -> x509.ExtendedKeyUsage:
        """Permitted usage."""
        purposes = ExtendedKeyUsageOID
        return x509.ExtendedKeyUsage([purposes.SERVER_AUTH if self.is_server else purposes.CLIENT_AUTH])


def _roles(request: CertificateRequest) -> list[_Role]:
    """All wanted certificates.

    Raises:
        ConfigError: hosts are given for an unknown server, or include the cloud's name for another role.
    """
    servers = {SUPERLINK: SUPERLINK, CLOUD: CLOUD}
    servers |= {leaf_name(leaf): server_name(leaf) for leaf in range(request.leaves)}
    for role, hosts in request.hosts.items():
        if role not in servers:
            raise ConfigError(
                f"--hosts must begin with a role, one of {', '.join(servers)}, but has {shown(role)}; "
                f"e.g. cloud=cloud.example.org,10.0.0.1, or raise --leaves"
            )
        if role != CLOUD and any(host.lower().rstrip(".") == CLOUD for host in hosts):  # as TLS compares
            raise ConfigError(
                f"the host {CLOUD} is reserved for the cloud, but is given to {role}; choose another name"
            )
    server_roles = [_Role(name, tuple(request.hosts.get(role, ())), True) for role, name in servers.items()]
    clients = [*map(leaf_name, range(request.leaves)), *map(path_name, request.paths)]
    return [*server_roles, *(_Role(name, (), False) for name in clients)]


def make_certificates(folder: Path, request: CertificateRequest) -> list[Path]:
    """Write the wanted files if missing or expiring; returns those written.

    Raises:
        ConfigError: the folder cannot be written, its authority cannot be read, or hosts have an unknown
            role.
    """
    written: list[Path] = []
    roles = _roles(request)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key, authority = _load_or_create_authority(folder, written)
        for role in roles:
            if not _is_valid(folder / f"{role.name}.crt", role, request.days, authority):
                _write_certificate(folder, role, request.days, key, authority, written)
        for node in range(request.nodes):
            if not (folder / f"node-{node}.pub").exists():
                _write_node_keys(folder, f"node-{node}", written)
    except OSError as error:
        raise ConfigError(
            f"the folder of certificates must be writable, but {error.filename or folder}: "
            f"{error.strerror or error}; "
            f"choose another"
        ) from error
    return written


def _load_or_create_authority(folder: Path, written: list[Path]) -> tuple[_Key, x509.Certificate]:
    """Key and certificate of the authority, created if the folder has no certificates."""
    key_file, file = folder / f"{AUTHORITY}.key", folder / f"{AUTHORITY}.crt"
    if file.exists() or any(folder.glob("*.crt")):
        return _read_authority(key_file, file)
    key, name = ec.generate_private_key(ec.SECP256R1()), _common_name("Fedge trial authority")
    builder = _builder(name, name, key, _AUTHORITY_DAYS).add_extension(
        x509.BasicConstraints(True, 0), critical=True
    )
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    authority = builder.sign(key, hashes.SHA256())
    _write_secret(key_file, _pem_of(key), written)
    _write(file, authority.public_bytes(serialization.Encoding.PEM), written)
    return key, authority


def _read_authority(key_file: Path, file: Path) -> tuple[_Key, x509.Certificate]:
    """Key and certificate of an existing authority."""
    try:
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        authority = x509.load_pem_x509_certificate(file.read_bytes())
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise ConfigError(
            f"{file} and {key_file.name} must be an authority made by `fedge certs`, but cannot be read: "
            f"{error}; choose another folder"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
        raise ConfigError(
            f"{key_file} must be the key of {file.name}, but is another key; choose another folder"
        )
    return key, authority


def _is_valid(file: Path, role: _Role, days: int, authority: x509.Certificate) -> bool:
    """Whether a role's certificate and key exist and are valid, with a third of the days left."""
    if not (file.exists() and file.with_suffix(".key").exists()):
        return False
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        certificate.verify_directly_issued_by(authority)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        names = set(_names_in(certificate))
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    margin = min(timedelta(days=days) / 3, timedelta(days=_AUTHORITY_DAYS / 3))
    has_time_left = certificate.not_valid_after_utc > datetime.now(timezone.utc) + max(
        margin, CLOCK_TOLERANCE
    )
    return has_time_left and usage == role.usage and names >= set(role.alternatives)


def _names_in(certificate: x509.Certificate) -> list[x509.GeneralName]:
    """Names and addresses of a certificate; empty for a client's."""
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _write_certificate(
    folder: Path, role: _Role, days: int, key: _Key, authority: x509.Certificate, written: list[Path]
) -> None:
    """Write key and certificate of one role."""
    own_key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_common_name(role.name), authority.subject, own_key, days)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(role.usage, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    if role.is_server:
        builder = builder.add_extension(x509.SubjectAlternativeName(role.alternatives), critical=False)
    if (replaced := folder / f"{role.name}.crt").is_file():
        note_replaced(folder, role.name, replaced)
    _write_secret(folder / f"{role.name}.key", _pem_of(own_key), written)
    signed = builder.sign(key, hashes.SHA256())
    _write(folder / f"{role.name}.crt", signed.public_bytes(serialization.Encoding.PEM), written)


def _builder(subject: x509.Name, issuer: x509.Name, key: _Key, days: int) -> x509.CertificateBuilder:
    """Builder with the fields common to all certificates."""
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    """An address or a host name as a certificate entry."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(
            f"--hosts must be names or addresses, but one is {host!r}; e.g. cloud=one.local,10.0.0.1"
        ) from error


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates,
        crl_sign=signs_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _write_node_keys(folder: Path, name: str, written: list[Path]) -> None:
    """Write a SuperNode's key pair in OpenSSH's format."""
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
    """Write a file unreadable by other accounts at every moment."""

    def open_private(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_EXCL, 0o600)

    path.unlink(missing_ok=True)  # left by an interrupted attempt, or renewed
    _write(path, content, written, open_private)


def _write(
    path: Path, content: bytes, written: list[Path], opener: Callable[[str, int], int] | None = None
) -> None:
    with open(path, "wb", opener=opener) as file:
        file.write(content)
    written.append(path)


def revoke(folder: Path, names: Sequence[str]) -> list[str]:
    """Revoke certificates, or keys of nodes; `make_certificates` can then create new ones.

    A certificate is added to the list of `fedge.link.revocations`, with those that it replaced. A node's
    public key is deleted, so no SuperLink started later admits it.

    Args:
        folder: the authority's folder.
        names: names such as leaf-0, cloud or node-3.

    Returns:
        The names.

    Raises:
        ConfigError: the folder has no certificate or key of a name.
    """
    serials, files = set(), []
    for name in names:
        paths = [folder / f"{name}{kind}" for kind in (".crt", ".key", ".pub", "")]
        if name == AUTHORITY or "/" in name or not (paths[0].is_file() or paths[2].is_file()):
            raise ConfigError(f"--revoke must name a certificate or node of {folder}, but is {shown(name)}")
        if paths[0].is_file():
            serials |= {read_certificate(paths[0]).serial_number, *replaced_serials(folder, name)}
        files += paths
    if serials:
        key, authority = _read_authority(folder / f"{AUTHORITY}.key", folder / f"{AUTHORITY}.crt")
        write_list(folder, serials, key, authority)
    for file in files:
        if file.is_file():
            file.unlink()
    return list(names)
