"""``fedge superlink``: what is refused before anything starts; whole ones: tests/deployed/."""

from types import SimpleNamespace

import pytest

from fedge.cli import main
from fedge.launch.flower_runs import superlink_command
from fedge.launch.flower_runs.fleet import KeysRefusedError
from fedge.link.certificates import CertificateRequest, make_certificates


@pytest.fixture
def words(tmp_path):
    make_certificates(tmp_path / "certs", CertificateRequest(nodes=1))
    return ["superlink", "--certs", str(tmp_path / "certs"), "--folder", str(tmp_path / "own")]


@pytest.mark.parametrize(
    ("more", "telling"),
    [
        (["--control", "0.0.0.0:9093"], "--control must be on the loopback interface, e.g. 127.0.0.1:9093"),
        (["--control", "superlink.example:1"], "--control must be on the loopback interface"),
        (["--control", "9093"], "--control must be HOST:PORT"),
        (["--nodes", "9092"], "--nodes must be HOST:PORT"),
        (["--nodes", "127.0.0.1:7", "--control", "localhost:7"], "different ports, but both have 7; choose"),
        (
            ["--nodes", "192.0.2.1:7"],
            "--nodes must be a free address of this machine, but 192.0.2.1:7: Cannot",
        ),
        (["--keys", "0-1"], "fedge superlink needs keys of SuperNodes in"),
        (["--keys", "x"], "--keys must be numbers of clients"),
        (["--certs", "nowhere"], "superlink.crt must exist for TLS"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words, more, telling, capsys):
    assert main([*words, *more]) == 4
    error = capsys.readouterr().err
    assert telling in error
    assert error.count("\n") == 1


def test_a_key_written_in_part_is_tried_again_when_its_file_has_changed(tmp_path, monkeypatch, capsys):
    """And not before; the others of the same look are in, and asked once."""
    whole, half = tmp_path / "node-0.pub", tmp_path / "node-1.pub"
    whole.write_text("whole")
    half.write_text("half")
    looks, asked = [], []

    def sleep(_):
        looks.append(0)
        if len(looks) == 3:
            half.write_text("half and half")

    class Link:
        log = "flower.log"

        @property
        def is_alive(self):
            return len(looks) < 5

        def register_keys(self, keys):
            asked.append([key.name for key in keys])
            if refused := [key for key in keys if key.read_text() == "half"]:
                raise KeysRefusedError(refused, "no key")

    monkeypatch.setattr(superlink_command.time, "sleep", sleep)
    options = SimpleNamespace(keys=None, certs=tmp_path)
    assert superlink_command._admit_new_keys(Link(), options, set()) == 4
    assert asked == [["node-0.pub", "node-1.pub"], ["node-1.pub"]]
    assert capsys.readouterr().err.count("must be accepted by Flower, but node-1.pub: no key;") == 1
