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

from fedge.config.option import ConfigError
from fedge.link.certificates import Wanted, leaf_name, make_certificates, refuse_unusable


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tls") / "certs"
    make_certificates(made, Wanted(("localhost", "127.0.0.1"), leaves=2, nodes=2))
    return made


def shaken_hands(server, client, authority, name):
    """Return who both sides say the other is, or the error of one: a TLS handshake on the loopback."""
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
    make_certificates(tmp_path, Wanted(leaves=1))
    client = {"none": None, "other authority": pair(tmp_path, "leaf-0")}.get(stranger, pair(folder, "leaf-0"))
    host = "10.0.0.9" if stranger == "other host" else "localhost"
    seen = shaken_hands(pair(folder, "cloud"), client, folder / "ca.crt", host)
    assert any(isinstance(each, OSError) for each in seen)


def test_keys_are_their_owner_s_alone(folder):
    secret = [p for p in folder.iterdir() if p.suffix not in (".crt", ".pub")]
    assert len(secret) == 1 + 2 + 2 + 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}


def test_node_keys_are_what_flower_registers(folder):
    public = serialization.load_ssh_public_key((folder / "node-0.pub").read_bytes())
    private = serialization.load_ssh_private_key((folder / "node-0").read_bytes(), None)
    assert private.public_key() == public
    assert uses_nist_ec_curve(public)


def test_what_is_there_stays_and_what_is_missing_comes(tmp_path):
    make_certificates(tmp_path, Wanted(leaves=1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert make_certificates(tmp_path, Wanted(leaves=1)) == []
    added = make_certificates(tmp_path, Wanted(leaves=2, nodes=1))
    assert {path.name for path in added} == {"leaf-1.crt", "leaf-1.key", "node-0", "node-0.pub"}
    assert before.items() <= {path.name: path.read_bytes() for path in tmp_path.iterdir()}.items()


def test_certificates_that_lack_a_host_or_their_key_are_made_anew(tmp_path):
    make_certificates(tmp_path, Wanted(("localhost",)))
    authority = (tmp_path / "ca.crt").read_bytes()
    anew = make_certificates(tmp_path, Wanted(("cloud.example", "::1")))
    assert {path.name for path in anew} == {"cloud.crt", "cloud.key", "superlink.crt", "superlink.key"}
    assert (tmp_path / "ca.crt").read_bytes() == authority
    (tmp_path / "cloud.key").unlink()
    assert [path.name for path in make_certificates(tmp_path, Wanted(("::1",)))] == ["cloud.key", "cloud.crt"]
    refuse_unusable(*pair(tmp_path, "cloud"), tmp_path / "ca.crt")


def test_certificates_run_out(tmp_path):
    make_certificates(tmp_path, Wanted(days=3))
    found = x509.load_pem_x509_certificate((tmp_path / "cloud.crt").read_bytes())
    assert found.not_valid_after_utc - datetime.now(timezone.utc) < timedelta(days=3)


def test_another_s_files_are_refused(tmp_path, folder):
    make_certificates(tmp_path, Wanted(leaves=1))
    with pytest.raises(ConfigError, match=r"cloud\.crt, leaf-0\.key and ca\.crt must be a certificate"):
        refuse_unusable(tmp_path / "cloud.crt", tmp_path / "leaf-0.key", tmp_path / "ca.crt")
    with pytest.raises(ConfigError, match="must be there for TLS"):
        refuse_unusable(tmp_path / "leaf-7.crt", tmp_path / "leaf-7.key", tmp_path / "ca.crt")
    (tmp_path / "ca.key").write_bytes((folder / "ca.key").read_bytes())
    with pytest.raises(ConfigError, match=r"must be the key of ca\.crt, but is another"):
        make_certificates(tmp_path, Wanted(leaves=2))
    (tmp_path / "ca.key").write_text("nothing")
    with pytest.raises(ConfigError, match="must be the authority of `fedge certs`"):
        make_certificates(tmp_path, Wanted(leaves=2))


@pytest.mark.skipif(os.geteuid() == 0 and os.name == "posix", reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="must be writable"):
        make_certificates(tmp_path / "certs", Wanted())


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "certs").write_text("")
    with pytest.raises(ConfigError, match="must be writable"):
        make_certificates(tmp_path / "certs", Wanted())
