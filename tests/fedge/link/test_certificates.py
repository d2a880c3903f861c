"""Certificates that OpenSSL and Flower take; who has none, or another authority's, does not get in."""

import os
import socket
import ssl
import stat
import threading
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from flwr.supercore.primitives.asymmetric import uses_nist_ec_curve

from fedge.config.registers.option import ConfigError
from fedge.link.certificate_checks import read_certificate, refuse_unusable
from fedge.link.certificates import (
    CertificateRequest,
    leaf_name,
    make_certificates,
    revoke,
)
from fedge.link.revocations import Revoked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tls") / "certs"
    make_certificates(made, CertificateRequest({"cloud": ["cloud.example"]}, leaves=2, nodes=2))
    return made


def shaken_hands(server, client, authority, name):
    """Names that both sides have for each other, or the error of one: a TLS handshake on the loopback."""
    here, there = socket.socketpair()
    listening = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
    listening.verify_mode = ssl.CERT_REQUIRED
    listening.load_cert_chain(*server)
    dialling = ssl.create_default_context(cafile=authority)
    if client:
        dialling.load_cert_chain(*client)
    seen = []

    def serve():
        try:
            with listening.wrap_socket(here, server_side=True) as wrapped:
                seen.append(wrapped.getpeercert()["subject"])
                wrapped.sendall(b".")
        except OSError as error:
            seen.append(error)
            here.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with dialling.wrap_socket(there, server_hostname=name) as wrapped:
            wrapped.recv(1)
    except OSError as error:
        seen.append(error)
        there.close()
    thread.join(10)
    return seen


def pair(folder, name):
    return folder / f"{name}.crt", folder / f"{name}.key"


def test_leaf_and_cloud_know_each_other(folder):
    (seen,) = shaken_hands(pair(folder, "cloud"), pair(folder, "leaf-1"), folder / "ca.crt", "127.0.0.1")
    assert seen == ((("commonName", leaf_name(1)),),)


@pytest.mark.parametrize("stranger", ["none", "other authority", "other host"])
def test_nobody_else_gets_in(folder, tmp_path, stranger):
    make_certificates(tmp_path, CertificateRequest(leaves=1))
    client = {"none": None, "other authority": pair(tmp_path, "leaf-0")}.get(stranger, pair(folder, "leaf-0"))
    host = "10.0.0.9" if stranger == "other host" else "localhost"
    seen = shaken_hands(pair(folder, "cloud"), client, folder / "ca.crt", host)
    assert any(isinstance(each, OSError) for each in seen)


def test_keys_are_their_owner_s_alone(folder):
    secret = [p for p in folder.iterdir() if p.suffix not in (".crt", ".pub")]
    assert len(secret) == 1 + 2 + 2 * 2 + 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}


def test_node_keys_are_what_flower_registers(folder):
    public = serialization.load_ssh_public_key((folder / "node-0.pub").read_bytes())
    private = serialization.load_ssh_private_key((folder / "node-0").read_bytes(), None)
    assert private.public_key() == public
    assert uses_nist_ec_curve(public)


def test_what_is_there_stays_and_what_is_missing_comes(tmp_path):
    make_certificates(tmp_path, CertificateRequest(leaves=1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert make_certificates(tmp_path, CertificateRequest(leaves=1)) == []
    added = make_certificates(tmp_path, CertificateRequest(leaves=2, nodes=1))
    assert {path.name for path in added} == {
        *(f"leaf-1{part}" for part in (".crt", ".key", "-server.crt", "-server.key")), "node-0", "node-0.pub",
    }  # fmt: skip
    assert before.items() <= {path.name: path.read_bytes() for path in tmp_path.iterdir()}.items()


def test_certificates_that_lack_a_host_or_their_key_are_made_anew(tmp_path):
    make_certificates(tmp_path, CertificateRequest())
    authority = (tmp_path / "ca.crt").read_bytes()
    hosts = {"cloud": ("cloud.example", "::1")}
    anew = make_certificates(tmp_path, CertificateRequest(hosts))
    assert {path.name for path in anew} == {"cloud.crt", "cloud.key"}
    assert (tmp_path / "ca.crt").read_bytes() == authority
    (tmp_path / "cloud.key").unlink()
    assert [path.name for path in make_certificates(tmp_path, CertificateRequest(hosts))] == [
        "cloud.key",
        "cloud.crt",
    ]
    refuse_unusable(*pair(tmp_path, "cloud"), tmp_path / "ca.crt")


def test_certificates_run_out(tmp_path):
    make_certificates(tmp_path, CertificateRequest(days=3))
    found = x509.load_pem_x509_certificate((tmp_path / "cloud.crt").read_bytes())
    assert found.not_valid_after_utc - datetime.now(timezone.utc) < timedelta(days=3)


def test_another_s_files_are_refused(tmp_path, folder):
    make_certificates(tmp_path, CertificateRequest(leaves=1))
    with pytest.raises(ConfigError, match=r"cloud\.crt, leaf-0\.key and ca\.crt must be a certificate"):
        refuse_unusable(tmp_path / "cloud.crt", tmp_path / "leaf-0.key", tmp_path / "ca.crt")
    with pytest.raises(ConfigError, match="must exist for TLS"):
        refuse_unusable(tmp_path / "leaf-7.crt", tmp_path / "leaf-7.key", tmp_path / "ca.crt")
    (tmp_path / "ca.key").write_bytes((folder / "ca.key").read_bytes())
    with pytest.raises(ConfigError, match=r"must be the key of ca\.crt, but is another"):
        make_certificates(tmp_path, CertificateRequest(leaves=2))
    (tmp_path / "ca.key").write_text("nothing")
    with pytest.raises(ConfigError, match="must be an authority made by `fedge certs`"):
        make_certificates(tmp_path, CertificateRequest(leaves=2))


@pytest.mark.skipif(os.geteuid() == 0 and os.name == "posix", reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="must be writable"):
        make_certificates(tmp_path / "certs", CertificateRequest())


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "certs").write_text("")
    with pytest.raises(ConfigError, match="must be writable"):
        make_certificates(tmp_path / "certs", CertificateRequest())


@pytest.mark.parametrize("name", ["leaf-0", "leaf-0-server", "superlink", "leaf-1-server"])
def test_no_other_machine_s_key_makes_a_cloud(folder, name):
    """A leaf knows the cloud by the name "cloud" in a server's certificate."""
    seen = shaken_hands(pair(folder, name), pair(folder, "leaf-1"), folder / "ca.crt", "cloud")
    assert any(isinstance(each, ssl.SSLCertVerificationError) for each in seen)


@pytest.mark.parametrize("name", ["cloud", "superlink", "leaf-1-server"])
def test_no_server_s_key_makes_a_leaf(folder, name):
    seen = shaken_hands(pair(folder, "cloud"), pair(folder, name), folder / "ca.crt", "cloud")
    assert any(isinstance(each, OSError) for each in seen)


def test_a_certificate_names_its_own_hosts_alone(tmp_path):
    hosts = {"cloud": ["cloud.example"], "superlink": ["10.0.0.1"], "leaf-1": ["leaf-1.example"]}
    make_certificates(tmp_path, CertificateRequest(hosts, leaves=2))

    def named(name):
        found = x509.load_pem_x509_certificate((tmp_path / f"{name}.crt").read_bytes())
        try:
            names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return set()
        return {str(name.value) for name in names}

    here = {"localhost", "127.0.0.1"}
    assert named("cloud") == {"cloud.example", "cloud"} | here
    assert named("superlink") == {"10.0.0.1"} | here
    assert named("leaf-0-server") == here
    assert named("leaf-1-server") == {"leaf-1.example"} | here
    assert named("leaf-0") == named("leaf-1") == set()


CLOUDS = ("cloud", "Cloud", "cloud.", "CLOUD.")  # one name to gRPC


@pytest.mark.parametrize(
    ("hosts", "telling"),
    [
        (
            {"leaf-2": ["a"]},
            "--hosts must begin with a role, one of superlink, cloud, leaf-0, leaf-1, but has",
        ),
        *(({"superlink": [host]}, "the host cloud is reserved for the cloud") for host in CLOUDS),
        ({"cloud": ["bücher"]}, "--hosts must be names or addresses"),
    ],
)
def test_hosts_that_are_nobody_s_are_refused(tmp_path, hosts, telling):
    with pytest.raises(ConfigError, match=telling):
        make_certificates(tmp_path, CertificateRequest(hosts, leaves=2))


def test_certificates_for_both_ways_are_made_anew(tmp_path):
    """As they were before there were roles."""
    make_certificates(tmp_path, CertificateRequest(leaves=1))
    for kind in ("crt", "key"):
        (tmp_path / f"leaf-0.{kind}").write_bytes((tmp_path / f"leaf-0-server.{kind}").read_bytes())
    assert [path.name for path in make_certificates(tmp_path, CertificateRequest(leaves=1))] == [
        "leaf-0.key",
        "leaf-0.crt",
    ]


def test_what_has_less_than_a_third_of_its_days_left_is_made_anew(tmp_path):
    make_certificates(tmp_path, CertificateRequest(days=9))
    assert make_certificates(tmp_path, CertificateRequest(days=26)) == []
    assert len(make_certificates(tmp_path, CertificateRequest(days=28))) == 4


def test_what_is_revoked_is_made_anew_and_the_old_one_is_on_the_list(tmp_path):
    make_certificates(tmp_path, CertificateRequest(leaves=1, nodes=2))
    old = read_certificate(tmp_path / "leaf-0.crt")
    authority = read_certificate(tmp_path / "ca.crt")
    assert revoke(tmp_path, ["leaf-0", "node-1"]) == ["leaf-0", "node-1"]
    assert Revoked(tmp_path, authority).serials() == {old.serial_number}
    anew = make_certificates(tmp_path, CertificateRequest(leaves=1, nodes=2))
    assert {path.name for path in anew} == {"leaf-0.crt", "leaf-0.key", "node-1", "node-1.pub"}
    for name in ("leaf-7", "ca", "../x", ""):
        with pytest.raises(ConfigError, match="--revoke must name a certificate or node"):
            revoke(tmp_path, [name])
