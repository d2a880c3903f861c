"""Certificates, keys, authorities and lists that are damaged, of others, or out of their time.

Each is refused in one line where it is read first: by ``fedge superlink``, ``fedge node``, ``fedge leaf``, a
leaf server of nodes, the cloud and ``fedge doctor``. Read again while they run, the previous one stays in
force, and that is said.
"""

import os
import re
import shutil
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from own_authority import CLIENT, SERVER, Issuer, write_all

from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.doctor.deployment import certificate_findings
from fedge.doctor.findings import BROKEN
from fedge.link.admission import Entrance
from fedge.link.certificate_checks import MOST_BYTES, read_certificate
from fedge.link.certificates import CertificateRequest, make_certificates, revoke
from fedge.link.dial import Link
from fedge.link.frames import Packet
from fedge.link.gate import LeafGate
from fedge.link.reach import free_port
from fedge.link.revocations import FILE, Revoked

REQUEST = CertificateRequest(leaves=1, nodes=1)
PEM = serialization.Encoding.PEM
NOW = datetime.now(timezone.utc)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A folder of certificates, and another authority's."""
    folder, other = tmp_path_factory.mktemp("own"), tmp_path_factory.mktemp("other")
    for each in (folder, other):
        make_certificates(each, REQUEST)
        revoke(each, ["leaf-0"])
        make_certificates(each, REQUEST)
    return folder, other


@pytest.fixture
def folder(honest, tmp_path):
    return shutil.copytree(honest[0], tmp_path / "certs")


def signed(folder, path, days):
    """The certificate at a path, signed once more for some days from and to now."""
    old = read_certificate(path)
    builder = x509.CertificateBuilder(
        old.issuer,
        old.subject,
        old.public_key(),
        old.serial_number,
        NOW + days[0],
        NOW + days[1],
        old.extensions,
    )
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    return builder.sign(key, hashes.SHA256()).public_bytes(PEM)


def days(first, last):
    return timedelta(days=first), timedelta(days=last)


def encrypted(path):
    """A private key with a password."""
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    kind, password = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    return key.private_bytes(PEM, kind, password)


def place(path, how, honest):
    """Put something else in the place of a file of certificates, by name."""
    folder, other = honest
    content = path.read_bytes()
    path.unlink()
    if how in ("folder", "pipe", "loop", "dangling"):
        {
            "folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "loop": lambda: path.symlink_to(path),
            "dangling": lambda: path.symlink_to(path.with_name("nowhere")),
        }[how]()  # fmt: skip
        return
    pair = path.with_suffix(".key" if path.suffix == ".crt" else ".crt")
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    lines = content.splitlines(keepends=True)
    spoilt = {
        "empty": lambda: b"",
        "cut": lambda: content[: len(content) // 2],
        "a line less": lambda: b"".join(lines[:3] + lines[4:]),
        "no end": lambda: b"".join(lines[:-1]),
        "garbage": lambda: b"\x1b[2J\x00" * 99,
        "zeros": lambda: bytes(len(content)),
        "a flipped byte": lambda: content.replace(lines[2][:9], lines[3][:9]),
        "long": lambda: content + b"\n" * MOST_BYTES,
        "its key": lambda: (folder / pair.name).read_bytes(),
        "public key": lambda: public.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        "list": lambda: (folder / FILE).read_bytes(),
        "another's": lambda: (other / path.name).read_bytes(),
        "expired": lambda: signed(folder, folder / path.name, days(-9, -2)),
        "early": lambda: signed(folder, folder / path.name, days(2, 9)),
        "DER": lambda: read_certificate(folder / path.name).public_bytes(serialization.Encoding.DER),
        "with a password": lambda: encrypted(folder / path.name),
    }
    path.write_bytes(spoilt[how]())


ANY = [
    "empty", "cut", "garbage", "zeros", "long", "no end", "public key", "list", "folder", "pipe", "loop",
    "dangling",
]  # fmt: skip
HOW = {
    ".crt": [*ANY, "a line less", "a flipped byte", "its key", "another's", "expired", "early", "DER"],
    ".key": [*ANY, "a line less", "a flipped byte", "its key", "another's", "with a password"],
}
OF_NODE = [*ANY, "another's kind"]


def refused(call, capsys=None):
    """Assert that a call, or a command, is refused in one line; returns the line."""
    if callable(call):
        with pytest.raises(ConfigError) as caught:
            call()
        said = str(caught.value)
    else:
        assert main(list(map(str, call))) == 4
        said = capsys.readouterr().err.removesuffix("\n").removeprefix("fedge: ")
    assert said.isprintable(), said
    assert 20 < len(said) < 1000, said
    return said


def entries(folder, role):
    """Command lines and calls that read a role's certificate first."""
    certs = ["--certs", folder]
    at = f"127.0.0.1:{free_port()}"
    if role == "superlink":
        superlink = ["superlink", "--nodes", at, "--control", f"127.0.0.1:{free_port()}"]
        return [[*superlink, *certs, "--folder", folder / "superlink"]]
    if role == "leaf-0-server":
        return [
            [
                "leaf",
                0,
                "--cloud",
                at,
                *certs,
                "--folder",
                folder / "leaf",
                "--nodes",
                f"127.0.0.1:{free_port()}",
            ]
        ]
    if role == "leaf-0":
        leaf = ["leaf", 0, "--cloud", at, *certs, "--folder", folder / "leaf"]
        return [leaf, lambda: Link(at, folder, 0)]
    return [lambda: Entrance(folder, 1, {})]


ROLES = ["superlink", "leaf-0-server", "leaf-0", "cloud"]
CASES = [(role, kind, how) for role in ROLES for kind in (".crt", ".key") for how in HOW[kind]]
IN_PLACE_OF = [("leaf-0", "leaf-0-server"), ("leaf-0", "cloud"), ("cloud", "leaf-0"), ("cloud", "superlink")]
OF_AUTHORITY = [how for how in HOW[".crt"] if how not in ("a flipped byte", "a line less")]


@pytest.mark.parametrize(("role", "other"), IN_PLACE_OF)
def test_another_role_s_certificate_with_its_key_is_one_line(folder, capsys, role, other):
    """All would begin, and stand at the link in another's name, or in front of peers that turn away."""
    for kind in (".crt", ".key"):
        (folder / f"{role}{kind}").write_bytes((folder / f"{other}{kind}").read_bytes())
    for entry in entries(folder, role):
        assert f"must be the certificate of {role}, but is that of {other}" in refused(entry, capsys)
    assert [one.name for one in certificate_findings(folder) if one.state == BROKEN] == [f"{role}.crt"]


@pytest.mark.parametrize(("role", "kind", "how"), CASES)
def test_a_damaged_certificate_or_key_is_one_line_at_whoever_reads_it(
    folder, honest, capsys, role, kind, how
):
    """No command asks a terminal, waits at a pipe, or starts with it."""
    place(folder / f"{role}{kind}", how, honest)
    for entry in entries(folder, role):
        assert role in refused(entry, capsys)
    assert [one for one in certificate_findings(folder) if one.state == BROKEN] or not (
        folder / f"{role}.crt"
    ).exists()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("how", OF_AUTHORITY)
def test_a_damaged_authority_is_one_line_at_whoever_reads_it(folder, honest, capsys, role, how):
    place(folder / "ca.crt", how, honest)
    for entry in entries(folder, role):
        assert "ca.crt" in refused(entry, capsys)


# --- an authority of one's own ---------------------------------------------------------------------------


def below(root="P-256", pathlen=None, **inner):
    return Issuer("inner", above=Issuer("root", root, pathlen=pathlen), **inner)


def one_key(kind):
    return {"cloud": {"kind": kind}, "leaf": {"kind": kind}}


WELCOME = [
    *((kind, one_key(kind)) for kind in ("P-256", "P-384", "RSA")),
    *((kind, {}) for kind in ("P-521", "Ed25519")),
    ("P-256", {"cloud": {"uses": ()}, "leaf": {"uses": ()}}),
    ("P-256", {"cloud": {"uses": [SERVER, CLIENT]}, "leaf": {"uses": [SERVER, CLIENT]}}),
    ("P-256", {"leaf": {"hosts": ["leaf.example"]}}),
]


@pytest.mark.parametrize("is_chain", [False, True])
@pytest.mark.parametrize(("root", "options"), WELCOME)
def test_certificates_of_any_authority_open_the_link(tmp_path, root, options, is_chain):
    write_all(tmp_path, below(root) if is_chain else Issuer("root", root), **options)
    with LeafGate("127.0.0.1:0", tmp_path, 1, Packet("welcome")) as gate:
        link = Link(gate.address, tmp_path, 0)
        handler = _WelcomeHandler(link)
        link.serve(handler, 20.0)
        assert handler.is_welcome


class _WelcomeHandler:
    """A leaf server that leaves once it is welcome."""

    def __init__(self, link):
        self._link, self.is_welcome = link, False

    def hello(self):
        return Packet("hello")

    def welcome(self, packet):
        self.is_welcome = True
        self._link.stop()


TURNED_AWAY = {
    "an inner authority's that expired": (lambda: below(seconds=-1), {}, "certificate has expired"),
    "too long a chain": (lambda: below(pathlen=0), {}, "path length constraint exceeded"),
    "another use": (Issuer, {"cloud": {"uses": [CLIENT]}, "leaf": {"uses": [SERVER]}}, "purpose"),
    "an Ed25519 key": (Issuer, one_key("Ed25519"), "have an RSA key, or one on the curve P-256 or"),
    "a P-521 key": (Issuer, one_key("P-521"), "have an RSA key, .* but its key is on secp521r1"),
    "another name": (
        Issuer, {"cloud": {"named": "cloud", "hosts": ["a"]}, "leaf": {"named": "a", "hosts": ["leaf-0"]}},
        "Hostname mismatch|be the certificate of leaf-0, but is that of a;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", ["cloud", "leaf-0"])
@pytest.mark.parametrize("case", TURNED_AWAY)
def test_what_the_other_end_would_refuse_is_one_line_at_its_owner(tmp_path, capsys, case, role):
    """The other end closes such a connection without a word, and a leaf server would try for ever."""
    issuer, options, telling = TURNED_AWAY[case]
    write_all(tmp_path, issuer("root") if issuer is Issuer else issuer(), **options)
    for entry in entries(tmp_path, role):
        assert re.search(rf"{role}\.crt must .*({telling})", refused(entry, capsys))
    assert f"{role}.crt" in [one.name for one in certificate_findings(tmp_path) if one.state == BROKEN]


# --- nodes -----------------------------------------------------------------------------------------------


def node(folder):
    words = ["node", 0, "--of", 1, "--superlink", f"127.0.0.1:{free_port()}", "--certs", folder]
    return [*words, "--own-data", folder / "ca.crt"]


@pytest.mark.parametrize("how", [how for how in OF_AUTHORITY if how not in ("another's", "dangling")])
def test_a_node_s_damaged_authority_is_one_line(folder, honest, capsys, how):
    place(folder / "ca.crt", how, honest)
    words = node(folder)
    words[-1] = folder
    assert "ca.crt" in refused(words, capsys)


@pytest.mark.parametrize("how", [how for how in ANY if how not in ("dangling", "loop")])
def test_a_node_s_damaged_key_is_one_line(folder, honest, capsys, how):
    place(folder / "node-0", how, honest)
    assert "node-0" in refused(node(folder), capsys)


def test_a_node_s_key_of_another_kind_is_one_line(folder, capsys):
    key = rsa.generate_private_key(65537, 2048)
    kind = serialization.PrivateFormat.OpenSSH
    (folder / "node-0").write_bytes(key.private_bytes(PEM, kind, serialization.NoEncryption()))
    assert "must be an elliptic curve key" in refused(node(folder), capsys)


# --- lists of revoked certificates -----------------------------------------------------------------------


def listed(folder, first, last, serials=(1,)):
    """A list of an authority for some days."""
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    names = read_certificate(folder / "ca.crt").subject
    builder = x509.CertificateRevocationListBuilder(names, NOW + first, NOW + last)
    for serial in serials:
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW).build()
        builder = builder.add_revoked_certificate(one)
    return builder.sign(key, hashes.SHA256()).public_bytes(PEM)


LISTS = [
    *(how for how in ANY if how not in ("list", "dangling")),
    "its key",
    "expired list",
    "early list",
    "another's",
    "certificate",
]


def place_list(path, how, honest):
    folder = honest[0]
    if how in ("expired list", "early list"):
        path.write_bytes(listed(folder, *(days(-9, -2) if how == "expired list" else days(2, 9))))
    elif how == "certificate":
        path.write_bytes((folder / "ca.crt").read_bytes())
    elif how == "its key":
        path.write_bytes((folder / "ca.key").read_bytes())
    else:
        place(path, how, honest)


@pytest.mark.parametrize("how", LISTS)
def test_a_damaged_list_is_one_line_at_the_cloud_s_start(folder, honest, how):
    place_list(folder / FILE, how, honest)
    assert FILE in refused(lambda: Entrance(folder, 1, {}))


@pytest.mark.parametrize("how", LISTS)
def test_a_damaged_list_leaves_the_one_before_in_force_and_is_named_once(folder, honest, caplog, how):
    found = Revoked(folder, read_certificate(folder / "ca.crt"))
    before = found.serials()
    assert len(before) == 1
    place_list(folder / FILE, how, honest)
    assert [found.serials() for _ in range(3)] == [before] * 3
    lines = [line for line in caplog.messages if "the previous list stays in force" in line]
    assert len(lines) == 1
    assert all(line.isprintable() for line in lines)
    path = folder / FILE
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.write_bytes(listed(folder, *days(-1, 9), serials=(5, 6)))
    assert found.serials() == {5, 6}


def test_a_list_that_becomes_readable_is_read(folder, monkeypatch):
    """Its content and time are what they were: only the rights to it are others."""
    found = Revoked(folder, read_certificate(folder / "ca.crt"))
    new = folder / "new"
    new.write_bytes(listed(folder, *days(-1, 9), serials=(5,)))
    os.utime(new, (1, 1))
    from fedge.link import revocations

    real = revocations.content_of
    monkeypatch.setattr(
        revocations, "content_of", lambda path: (_ for _ in ()).throw(PermissionError(13, "denied"))
    )
    new.replace(folder / FILE)
    assert 5 not in found.serials()
    monkeypatch.setattr(revocations, "content_of", real)
    (folder / FILE).chmod(0o640)
    assert found.serials() == {5}


# --- read again while they are in use --------------------------------------------------------------------


def check_named_once(messages, name, how):
    """A damaged file is named in one printable line."""
    lines = [line for line in messages if "the previous ones stay in force" in line]
    assert len(lines) == (how != "dangling"), how  # it comes after a loop: as unreadable
    assert all(line.isprintable() and name in line for line in lines), (how, lines)


def put_back(path, content):
    """A file as it was, in place of what stands there."""
    path.rmdir() if path.is_dir() else path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["leaf-0.crt", "leaf-0.key", "ca.crt"])
def test_damaged_files_of_a_leaf_server_leave_the_ones_before_in_force(folder, honest, caplog, name):
    link = Link("127.0.0.1:1", folder, 0)
    before = link._files._content
    for how in HOW[".key" if name.endswith("key") else ".crt"]:
        caplog.clear()
        kept = (folder / name).read_bytes()
        place(folder / name, how, honest)
        assert [link._files.have_changed() for _ in range(3)] == [False] * 3, how
        assert link._files._content == before
        assert link._files.credentials()
        check_named_once(caplog.messages, name, how)
        put_back(folder / name, kept)
    make_certificates(folder, REQUEST)
    for kind in (".crt", ".key"):
        (folder / f"leaf-0{kind}").unlink()
    assert not link._files.have_changed()
    make_certificates(folder, REQUEST)
    assert link._files.have_changed()
    assert link._files._content != before


@pytest.mark.parametrize("name", ["cloud.crt", "cloud.key", "ca.crt"])
def test_damaged_files_of_the_cloud_leave_the_ones_before_in_force(folder, honest, caplog, name):
    files = Entrance(folder, 1, {})._files
    for how in HOW[".key" if name.endswith("key") else ".crt"]:
        caplog.clear()
        kept = (folder / name).read_bytes()
        place(folder / name, how, honest)
        assert [files._reload() for _ in range(3)] == [None] * 3, how
        check_named_once(caplog.messages, name, how)
        put_back(folder / name, kept)
    assert files._reload() is not None  # written anew, with the same content
    assert files._reload() is None


def test_another_authority_s_list_counts_once_the_authority_has_changed(folder, honest):
    """A leaf revoked by the new authority does not get in, as by the old one."""
    other = honest[1]
    files = Entrance(folder, 1, {})._files
    before = files.revoked.serials()
    for name in ("ca.crt", "cloud.crt", "cloud.key", FILE):
        shutil.copy(other / name, folder / name)
    assert files._reload() is not None
    after = files.revoked.serials()
    assert len(after) == 1
    assert after != before


def test_an_authority_s_chain_is_as_good_as_its_own_hand(tmp_path):
    """A certificate signed by one that the authority has signed, both in one file; and two authorities."""
    issuer = below()
    write_all(tmp_path, issuer)
    old = Issuer("root", seconds=-1).chain[0].public_bytes(PEM)
    (tmp_path / "ca.crt").write_bytes(old + (tmp_path / "ca.crt").read_bytes())
    assert Link("127.0.0.1:1", tmp_path, 0)
    (tmp_path / "leaf-0.crt").write_bytes(read_certificate(tmp_path / "leaf-0.crt").public_bytes(PEM))
    assert "must be signed by ca.crt" in refused(lambda: Link("127.0.0.1:1", tmp_path, 0))
