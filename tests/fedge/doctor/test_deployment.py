"""Findings on a machine of a deployment: real certificates, real servers on the loopback interface."""

import argparse
import json
import os
import socket
import ssl
import threading
from contextlib import suppress

import pytest

from fedge.cli import main
from fedge.doctor.deployment import (
    certificate_findings,
    clock_findings,
    folder_findings,
    server_findings,
    version_findings,
)
from fedge.doctor.findings import BROKEN, TRAP, WELL
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.reach import free_port


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder, CertificateRequest({"superlink": ["localhost"]}, leaves=1, nodes=1))
    return folder


@pytest.fixture
def server():
    """A function that listens with TLS, by a certificate of a folder; returns the port."""
    over, threads = threading.Event(), []

    def begin(folder, role):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / f"{role}.crt", folder / f"{role}.key")
        context.set_alpn_protocols(["h2"])
        listening = socket.create_server(("127.0.0.1", 0))
        listening.settimeout(0.1)

        def answer():
            while not over.is_set():
                with suppress(OSError), context.wrap_socket(listening.accept()[0], server_side=True):
                    pass
            listening.close()

        threads.append(threading.Thread(target=answer))
        threads[-1].start()
        return listening.getsockname()[1]

    yield begin
    over.set()
    for thread in threads:
        thread.join()


def named(found):
    return {one.name: one for one in found}


def test_certificates_are_good_until_their_end(certificates):
    found = named(certificate_findings(certificates))
    assert found["superlink.crt"].state == found["leaf-0.crt"].state == WELL
    assert "days" in found["cloud.crt"].words
    assert (found["ca.key"].state, "only the machine" in found["ca.key"].words) == (TRAP, True)
    assert "node-0" not in found  # it can be read


def test_a_certificate_that_ends_soon_or_fits_no_key_is_named(tmp_path):
    soon, other = tmp_path / "soon", tmp_path / "other"
    make_certificates(soon, CertificateRequest({"superlink": ["localhost"]}, days=5))
    make_certificates(other, CertificateRequest({"superlink": ["localhost"]}))
    assert named(certificate_findings(soon))["superlink.crt"].state == TRAP
    (soon / "superlink.key").write_bytes((other / "superlink.key").read_bytes())
    found = [one for one in certificate_findings(soon) if one.state == BROKEN]
    assert [one.name for one in found] == ["superlink.crt"]
    assert [one.words for one in certificate_findings(tmp_path)] == [
        f"{tmp_path}/ca.crt does not exist; fedge certs creates one for trials"
    ]


def asked(folder, **addresses):
    none = {"superlink": None, "cloud": None, "control": None}
    return named(server_findings(argparse.Namespace(certs=folder, **none | addresses)))


def test_servers_are_reached_as_whom_they_have_to_be(certificates, server, tmp_path):
    superlink, cloud = (f"localhost:{server(certificates, role)}" for role in ("superlink", "cloud"))
    found = asked(certificates, superlink=superlink, cloud=cloud, control=superlink)
    assert {name: one.state for name, one in found.items()} == {
        "--superlink": WELL, "--cloud": WELL, "--control": WELL
    }  # fmt: skip
    assert asked(certificates, cloud=superlink)["--cloud"].state == BROKEN  # is no cloud
    make_certificates(tmp_path / "theirs", CertificateRequest())
    other = asked(tmp_path / "theirs", superlink=superlink)["--superlink"]
    assert (other.state, "signed by" in other.words) == (BROKEN, True)
    nobody = asked(certificates, superlink=f"localhost:{free_port()}", control=f"127.0.0.1:{free_port()}")
    assert [one.state for one in nobody.values()] == [BROKEN, BROKEN]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_place_of_another_account_is_named(tmp_path):
    tmp_path.chmod(0o500)
    ((found),) = folder_findings((tmp_path / "own",))
    tmp_path.chmod(0o700)
    assert (found.state, "chown" in found.words) == (BROKEN, True)


def test_places_have_their_room(tmp_path):
    (found,) = folder_findings((tmp_path / "not" / "there",))
    assert found.state in (WELL, TRAP)
    assert "MiB free" in found.words


def test_versions_and_clock_are_told():
    assert "flwr" in version_findings().words
    assert clock_findings().words.count(" UTC, ") == 1


def test_the_command(certificates, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = ["doctor", "deployment", "--certs", str(certificates)]
    assert main([*words, "--json"]) == 0
    assert {"versions", "clock", "superlink.crt"} <= {
        one["name"] for one in json.loads(capsys.readouterr().out)
    }
    assert main([*words, "--superlink", f"127.0.0.1:{free_port()}"]) == 4
    assert "does not answer" in " ".join(capsys.readouterr().out.split())
