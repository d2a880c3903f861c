"""A SuperLink that its SuperNodes reach alone: whose keys get in, what Flower is told."""

import socket
import stat
import subprocess
import threading
from itertools import pairwise

import pytest

from fedge.config.registers.option import ConfigError
from fedge.launch.flower_runs import fleet
from fedge.launch.flower_runs.fleet import (
    KeysRefusedError,
    SuperLink,
    SuperLinkPlace,
    await_free,
    keys_of,
    register_keys,
)
from fedge.link import bound_nodes
from fedge.link.bound_nodes import BoundNodes
from fedge.link.certificates import CertificateRequest, make_certificates


@pytest.fixture
def place(tmp_path):
    make_certificates(tmp_path / "certs", CertificateRequest(nodes=2))
    return SuperLinkPlace(
        "--nodes", "0.0.0.0:9092", 7, tmp_path / "certs", "superlink", tmp_path / "own", "fedge"
    )


def test_which_keys_get_in_can_be_said(tmp_path):
    """All that are there, or those of clients; one that is missing is no reason to let others in."""
    make_certificates(tmp_path, CertificateRequest(nodes=4))

    def names(numbers):
        return [key.name for key in keys_of(tmp_path, numbers)]

    assert names(None) == [f"node-{number}.pub" for number in range(4)]
    assert names("3,0-1") == ["node-0.pub", "node-1.pub", "node-3.pub"]
    with pytest.raises(ConfigError, match=r"but there is no node-4\.pub; create keys"):
        names("0-4")
    for odd in ("", "a", "1-", "-1", "0,,1", "2-1"):
        with pytest.raises(ConfigError, match=r"--keys must be numbers|--nodes needs keys"):
            names(odd)


def test_a_key_that_is_not_to_get_in_any_more_does_not(place, monkeypatch, capsys):
    """Keys of the SuperLink go, and those that stay are registered anew."""
    place.prepare()
    registered = []

    class Link:
        def __init__(self, *_):
            (place.folder / "superlink.db").touch()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def register_keys(self, keys):
            registered.append([key.name for key in keys])
            with (place.folder / "keys-let-in").open("a") as record:
                record.writelines(f"{key.read_text().strip()}\n" for key in keys)

    monkeypatch.setattr(fleet, "SuperLink", Link)
    both = keys_of(place.certs, None)
    register_keys(both, place)
    register_keys(both, place)
    register_keys(both[1:], place)
    assert registered == [["node-0.pub", "node-1.pub"], ["node-1.pub"]]
    assert "a key admitted before is no longer admitted" in capsys.readouterr().out


SAID = {
    "node-0.pub": "\x1f\nSuperNode 11 registered\n successfully.\n",
    "node-1.pub": "\x1f\n\x1b[91mError\x1b[0m: the key is not valid.\n",
    "node-2.pub": "\x1f\nSuperNode 13 registered successfully.\n",
}


def flower_says(monkeypatch, lines):
    """Flower's command answers with these lines; gives the names of the keys that it was asked to take."""
    asked = []

    def run(words, **_):
        given = [word for word in words if word.endswith(".pub")]
        asked.append([word.rpartition("/")[2] for word in given])
        return subprocess.CompletedProcess(words, 0, "".join(lines(name) for name in asked[-1]))

    monkeypatch.setattr(fleet.subprocess, "run", run)
    return asked


def running(place):
    """A SuperLink as it is while it runs."""
    link = object.__new__(SuperLink)
    link.place, link.environment = place, {}
    return link


def test_one_refused_key_leaves_the_others_bound_to_their_partitions(tmp_path, place, monkeypatch):
    """A node whose key is let in but bound to nothing could claim any partition."""
    make_certificates(place.certs, CertificateRequest(nodes=4))
    (place.certs / "node-3.pub").write_bytes(b"\xff\xfe")
    place.prepare()
    asked = flower_says(monkeypatch, SAID.get)
    keys = keys_of(place.certs, None)
    with pytest.raises(
        KeysRefusedError, match=r"but node-1\.pub, node-3\.pub: Error: the key is not"
    ) as caught:
        running(place).register_keys(keys)
    assert [key.name for key in caught.value.keys] == ["node-1.pub", "node-3.pub"]
    assert asked == [["node-0.pub", "node-1.pub", "node-2.pub"]]
    assert (place.folder / "keys-let-in").read_text().splitlines() == [
        (place.certs / f"node-{number}.pub").read_text().strip() for number in (0, 2)
    ]
    monkeypatch.setattr(bound_nodes.os, "environ", {})
    bound_nodes.export_bindings(bound_nodes.os.environ, place.folder)
    assert [BoundNodes()(node) for node in (11, 12, 13)] == [0, None, 2]


def test_a_command_that_fails_before_the_first_key_lets_none_in(place, monkeypatch):
    place.prepare()
    flower_says(monkeypatch, lambda _: "no module named flwr\n")
    with pytest.raises(KeysRefusedError, match="no module named flwr") as caught:
        running(place).register_keys(keys_of(place.certs, None))
    assert len(caught.value.keys) == 2
    assert not (place.folder / "keys-let-in").read_text()


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_key_that_is_no_text_is_one_line(place, content):
    place.prepare()
    key = keys_of(place.certs, None)[0]
    key.unlink()
    key.mkdir() if content is None else key.write_bytes(content)
    with pytest.raises(ConfigError, match=r"must be a public key, but: .*; copy it again, or remove it"):
        register_keys([key], place)


def test_a_port_that_is_taken_is_refused(monkeypatch):
    monkeypatch.setattr(fleet, "_FREE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"--nodes must be a free .* 127.*: Address already in use;"):
            await_free("--nodes", address)


def test_a_port_that_gets_free_is_waited_for():
    """As that of a killed process's SuperLink, which takes seconds to end."""
    taken = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{taken.getsockname()[1]}"
    threading.Timer(0.5, taken.close).start()
    await_free("--nodes", address)
    assert taken.fileno() == -1


def test_an_address_of_another_machine_is_not_waited_for():
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:9: Cannot assign requested address; choose"):
        await_free("--nodes", "192.0.2.1:9")


def test_two_superlinks_do_not_share_a_folder(place):
    """They would have one database of nodes; the second begins once the first has ended."""
    place.prepare()
    with (
        place.exclusive_use(),
        pytest.raises(ConfigError, match="another SuperLink uses"),
        place.exclusive_use(),
    ):
        pass
    with place.exclusive_use():
        pass


def test_the_superlink_is_reached_by_nodes_alone(place, monkeypatch):
    monkeypatch.setattr(fleet, "has_one_port", lambda: False)
    words = fleet._superlink_command(place, "0.0.0.0:9092")
    given = dict(pairwise(words))
    assert given["--fleet-api-address"] == "0.0.0.0:9092"
    assert given["--control-api-address"] == "127.0.0.1:7"
    assert given["--serverappio-api-address"].startswith("127.0.0.1:")
    assert given["--ssl-certfile"].endswith("superlink.crt")
    assert "--enable-supernode-auth" in words
    assert "--insecure" not in words


def test_a_superlink_with_one_port_for_all_is_for_this_machine_alone(place, monkeypatch):
    """Nodes dial the filter before it."""
    monkeypatch.setattr(fleet, "has_one_port", lambda: True)
    words = fleet._superlink_command(place, "0.0.0.0:9092")
    given = dict(pairwise(words))
    assert (given["--host"], given["--port"]) == ("127.0.0.1", "7")
    assert "0.0.0.0:9092" not in words


def test_its_folder_is_this_account_s_alone(place):
    place.folder.mkdir(mode=0o755)
    place.prepare()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (place.folder, place.folder / "flower")} == {0o700}


def test_what_cannot_be_used_is_refused(place, tmp_path):
    (tmp_path / "own").write_text("")
    with pytest.raises(ConfigError, match="--folder must be writable"):
        place.prepare()
    (place.certs / "superlink.crt").unlink()
    with pytest.raises(ConfigError, match=r"superlink\.crt must exist for TLS"):
        place.prepare()
