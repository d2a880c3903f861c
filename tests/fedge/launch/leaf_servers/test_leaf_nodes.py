"""``fedge leaf --nodes``: what is refused, and what Flower is given; whole ones: deployed/test_leaves.py."""

import argparse

import pytest

from fedge.config.registers.option import ConfigError
from fedge.launch.leaf_servers import leaf_nodes
from fedge.launch.projects.project import Project
from fedge.link.certificates import CertificateRequest, make_certificates


@pytest.fixture
def options(tmp_path):
    make_certificates(tmp_path / "certs", CertificateRequest(leaves=1, nodes=1))
    return argparse.Namespace(
        leaf=0, cloud="127.0.0.1:1", certs=tmp_path / "certs", folder=tmp_path / "own", nodes="127.0.0.1:2",
        once=True, wait=None, owns_process=False, keys=None, trust_code=False,
    )  # fmt: skip


def test_without_keys_nobody_would_get_in(options):
    (options.certs / "node-0.pub").unlink()
    with pytest.raises(ConfigError, match=r"--nodes needs keys of SuperNodes in .*certs --nodes N"):
        leaf_nodes.serve_leaf_of_nodes(options)


def test_an_address_must_be_one(options):
    options.nodes = "9092"
    with pytest.raises(ConfigError, match="--nodes must be HOST:PORT"):
        leaf_nodes.serve_leaf_of_nodes(options)


def test_its_superlink_shows_the_leafs_certificate_as_a_server(options, tmp_path):
    place = leaf_nodes.leaf_link_place(options)
    assert place.pair == (options.certs / "leaf-0-server.crt", options.certs / "leaf-0-server.key")
    assert (place.folder, place.nodes, place.link["address"]) == (
        tmp_path / "own", "127.0.0.1:2", f"127.0.0.1:{place.control}",
    )  # fmt: skip


def test_the_app_is_one_of_flowers(options, tmp_path):
    place = leaf_nodes.leaf_link_place(options)
    leaf_nodes.write_app(tmp_path / "app", place, options)
    project = Project(tmp_path / "app")
    assert project.server_app == "fedge.leaf_app:app"
    assert project.address("leaf") == f"127.0.0.1:{place.control}"
    assert project.authority("leaf") == (True, options.certs / "ca.crt")
