"""Certificates of an authority of one's own: any kinds of keys, uses, names, lives and chains."""

from datetime import datetime, timedelta, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PEM = serialization.Encoding.PEM
KEYS = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "P-521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
}
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


class Issuer:
    """An authority, or one below it.

    Attributes:
        chain: its certificate, and those between it and the root.
    """

    def __init__(self, name, kind="P-256", above=None, seconds=3600, pathlen=None):
        self._key = KEYS[kind]()
        self.chain = ()
        certificate = self.sign(name, self._key.public_key(), seconds, True, (), (), pathlen, above or self)
        self.chain = (certificate, *(above.chain if above else ()))

    def sign(self, name, key, seconds, is_issuer=False, hosts=(), uses=(), pathlen=None, by=None):
        """A certificate for a public key; of this issuer, unless another is given."""
        by, now = by or self, datetime.now(timezone.utc)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = x509.CertificateBuilder(
            by.chain[0].subject if by.chain else subject, subject, key, x509.random_serial_number(),
            now - timedelta(days=1), now + timedelta(seconds=seconds),
        )  # fmt: skip
        extensions = [
            x509.BasicConstraints(is_issuer, pathlen),
            x509.SubjectKeyIdentifier.from_public_key(key),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(by._key.public_key()),
            *([x509.KeyUsage(*[False] * 5, True, True, False, False)] if is_issuer else []),
            *([x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])] if hosts else []),
            *([x509.ExtendedKeyUsage(uses)] if uses else []),
        ]
        for extension in extensions:
            builder = builder.add_extension(extension, isinstance(extension, x509.BasicConstraints))
        hashed = None if isinstance(by._key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        return builder.sign(by._key, hashed)


def write_pair(folder, name, issuer, kind="P-256", seconds=3600, named="", hosts=(), uses=()):
    """Write NAME.crt, with the certificates between it and the root, and NAME.key."""
    key = KEYS[kind]()
    certificate = issuer.sign(named or name, key.public_key(), seconds, hosts=hosts, uses=uses)
    folder.mkdir(exist_ok=True)
    chain = [certificate, *issuer.chain[:-1]]
    (folder / f"{name}.crt").write_bytes(b"".join(one.public_bytes(PEM) for one in chain))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(PEM, *plain))


def write_all(folder, issuer, cloud=None, leaf=None):
    """Write ca.crt and the pairs of the cloud and of leaf server 0; options as in `write_pair`."""
    write_pair(folder, "cloud", issuer, **{"hosts": ["cloud"], "uses": [SERVER], **(cloud or {})})
    write_pair(folder, "leaf-0", issuer, **{"uses": [CLIENT], **(leaf or {})})
    (folder / "ca.crt").write_bytes(issuer.chain[-1].public_bytes(PEM))
