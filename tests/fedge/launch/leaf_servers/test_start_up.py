"""Refusals of `fedge leaf` before it serves, in each of its forms: clients as threads, a subtree, nodes."""

import argparse

import pytest

from fedge.config.registers.option import ConfigError
from fedge.launch.leaf_servers.leaf import serve_leaf
from fedge.launch.leaf_servers.leaf_nodes import serve_leaf_of_nodes
from fedge.launch.leaf_servers.subtree import serve_subtree
from fedge.launch.own_folder import exclusive_folder
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.frames import Packet
from fedge.link.gate import WELCOME, LeafGate
from fedge.link.reach import free_port

FORMS = [serve_leaf, serve_subtree, serve_leaf_of_nodes]
CERTIFICATES = CertificateRequest(leaves=1, nodes=1, paths=["0"])


def options(tmp_path, cloud):
    return argparse.Namespace(
        leaf=0, at="0", cloud=cloud, certs=tmp_path / "certs", folder=tmp_path / "own", workers=1, once=True,
        wait=30.0, owns_process=False, trust_code=False, data="", nodes=f"127.0.0.1:{free_port()}", keys=None,
    )  # fmt: skip


@pytest.mark.parametrize("serve", FORMS)
@pytest.mark.parametrize("cloud", ["localhost", "::1:9555", "localhost:99999", "http://localhost:1"])
def test_a_cloud_without_an_address_is_refused(tmp_path, serve, cloud):
    make_certificates(tmp_path / "certs", CERTIFICATES)
    with pytest.raises(ConfigError, match="--cloud must be HOST:PORT"):
        serve(options(tmp_path, cloud))
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize("serve", FORMS)
def test_a_folder_that_cannot_be_made_is_refused(tmp_path, serve):
    make_certificates(tmp_path / "certs", CERTIFICATES)
    (tmp_path / "own").write_text("a file")
    with pytest.raises(ConfigError, match=r"--folder must be writable, but .*own: .*; choose another"):
        serve(options(tmp_path, f"127.0.0.1:{free_port()}"))


@pytest.mark.parametrize("serve", FORMS)
def test_a_cloud_of_another_authority_is_refused(tmp_path, serve):
    """gRPC would try again for ever, with a line of its own on the terminal each time."""
    for folder in ("certs", "other"):
        make_certificates(tmp_path / folder, CERTIFICATES)
    told = "--cloud must have a certificate for cloud signed by"
    with (
        LeafGate("127.0.0.1:0", tmp_path / "other", 1, Packet(WELCOME)) as gate,
        pytest.raises(ConfigError, match=told),
    ):
        serve(options(tmp_path, gate.address))


@pytest.mark.parametrize("serve", FORMS)
def test_a_folder_that_another_process_uses_is_refused(tmp_path, serve):
    """They would replace, or remove, each other's windows and control variates."""
    make_certificates(tmp_path / "certs", CERTIFICATES)
    (tmp_path / "own").mkdir()
    asked = options(tmp_path, f"127.0.0.1:{free_port()}")
    asked.wait = 0.2
    with (
        exclusive_folder(tmp_path / "own", "leaf server"),
        pytest.raises(ConfigError, match=r"--folder must not be in use, but another .* uses .*own; stop"),
    ):
        serve(asked)
