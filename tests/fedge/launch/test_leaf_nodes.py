"""``fedge leaf --nodes``: what is refused, and what Flower is given; whole ones: deployed/test_leaves.py."""

import argparse
import socket
from itertools import pairwise

import pytest

from fedge.config.option import ConfigError
from fedge.launch import leaf_nodes
from fedge.launch.project import Project
from fedge.link.certificates import Wanted, make_certificates


@pytest.fixture
def options(tmp_path):
    make_certificates(tmp_path / "certs", Wanted(leaves=1, nodes=1))
    return argparse.Namespace(
        leaf=0, cloud="127.0.0.1:1", certs=tmp_path / "certs", folder=tmp_path / "own", nodes="127.0.0.1:2",
        once=True, wait=None, owns_process=False, keys=None,
    )  # fmt: skip


def test_without_keys_nobody_would_get_in(options):
    (options.certs / "node-0.pub").unlink()
    with pytest.raises(ConfigError, match=r"--nodes needs keys of SuperNodes in .*certs --nodes N"):
        leaf_nodes.serve_leaf_of_nodes(options)


def test_which_keys_get_in_can_be_said(options):
    """All that are there, or those of clients; one that is missing is no reason to let others in."""
    make_certificates(options.certs, Wanted(leaves=1, nodes=4))

    def names(numbers):
        return [key.name for key in leaf_nodes._keys(options.certs, numbers)]

    assert names(None) == [f"node-{number}.pub" for number in range(4)]
    assert names("3,0-1") == ["node-0.pub", "node-1.pub", "node-3.pub"]
    with pytest.raises(ConfigError, match=r"but there is no node-4\.pub; make them"):
        names("0-4")
    for odd in ("", "a", "1-", "-1", "0,,1", "2-1"):
        with pytest.raises(ConfigError, match=r"--keys must be numbers|--nodes needs keys"):
            names(odd)


def test_a_key_that_is_not_to_get_in_any_more_does_not(options, tmp_path, monkeypatch, capsys):
    """What the SuperLink knew goes, and those that stay are registered anew."""
    make_certificates(options.certs, Wanted(leaves=1, nodes=2))
    let_in = []

    class Link:
        def __init__(self, *_):
            (tmp_path / "superlink.db").touch()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def let_in(self, keys):
            let_in.append([key.name for key in keys])

    monkeypatch.setattr(leaf_nodes, "_SuperLink", Link)
    both = leaf_nodes._keys(options.certs, None)
    leaf_nodes._let_in(both, tmp_path, options)
    leaf_nodes._let_in(both, tmp_path, options)
    leaf_nodes._let_in(both[1:], tmp_path, options)
    assert let_in == [["node-0.pub", "node-1.pub"], ["node-1.pub"]]
    assert "a key that got in before does not any more" in capsys.readouterr().out


def test_an_address_must_be_one(options):
    options.nodes = "9092"
    with pytest.raises(ConfigError, match="--nodes must be HOST:PORT"):
        leaf_nodes.serve_leaf_of_nodes(options)


def test_a_port_that_is_taken_is_refused(options, monkeypatch):
    monkeypatch.setattr(leaf_nodes, "_FREE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options.nodes = f"0.0.0.0:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="--nodes must be free, but somebody listens at"):
            leaf_nodes.serve_leaf_of_nodes(options)


def test_the_superlink_is_reached_by_nodes_alone_and_shows_the_leafs_certificate(
    options, tmp_path, monkeypatch
):
    monkeypatch.setattr(leaf_nodes, "has_one_port", lambda: False)
    words = leaf_nodes._superlink_words(options, tmp_path, leaf_nodes._Ports(7, 8), "0.0.0.0:9092")
    given = dict(pairwise(words))
    assert given["--fleet-api-address"] == "0.0.0.0:9092"
    assert given["--control-api-address"] == "127.0.0.1:7"
    assert given["--serverappio-api-address"] == "127.0.0.1:8"
    assert given["--ssl-certfile"].endswith("leaf-0.crt")
    assert "--enable-supernode-auth" in words


def test_a_superlink_with_one_port_for_all_is_for_this_machine_alone(options, tmp_path, monkeypatch):
    """Nodes dial the filter before it."""
    monkeypatch.setattr(leaf_nodes, "has_one_port", lambda: True)
    words = leaf_nodes._superlink_words(options, tmp_path, leaf_nodes._Ports(7, 8), "0.0.0.0:9092")
    given = dict(pairwise(words))
    assert (given["--host"], given["--port"]) == ("127.0.0.1", "7")
    assert "0.0.0.0:9092" not in words


def test_the_app_is_one_of_flowers(options, tmp_path):
    leaf_nodes._write_app(tmp_path / "app", tmp_path, options, "127.0.0.1:7")
    project = Project(tmp_path / "app")
    assert project.server_app == "fedge.leaf_app:app"
    assert project.address("leaf") == "127.0.0.1:7"
    assert project.authority("leaf") == (True, options.certs / "ca.crt")
