"""``fedge superlink``: what is refused before anything starts; whole ones: tests/deployed/."""

import pytest

from fedge.cli import main
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
