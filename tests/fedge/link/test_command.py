"""The command ``fedge certs``."""

import pytest

from fedge.cli import main


def test_certs_are_written_and_named(tmp_path, capsys):
    words = [
        "certs",
        str(tmp_path / "tls"),
        "--hosts",
        "cloud=cloud.example, 10.1.2.3",
        "--leaves",
        "1",
        "--nodes",
        "2",
    ]
    assert main(words) == 0
    assert {p.name for p in (tmp_path / "tls").iterdir()} == {
        "ca.crt", "ca.key", "cloud.crt", "cloud.key", "superlink.crt", "superlink.key",
        "leaf-0.crt", "leaf-0.key", "leaf-0-server.crt", "leaf-0-server.key",
        "node-0", "node-0.pub", "node-1", "node-1.pub",
    }  # fmt: skip
    assert len(capsys.readouterr().out.splitlines()) == 14
    assert main(words) == 0
    assert "already has all of them" in capsys.readouterr().out


def test_servers_over_leaves_have_certificates_by_path_and_lose_them_by_name(tmp_path, capsys):
    folder = tmp_path / "tls"
    assert main(["certs", str(folder), "--at", "0, 1.0"]) == 0
    assert {p.stem for p in folder.glob("server-*.crt")} == {"server-0", "server-1.0"}
    assert main(["certs", str(folder), "--revoke", "server-1.0"]) == 0
    assert not (folder / "server-1.0.crt").exists()
    assert "server-1.0 is revoked; copy revoked.pem beside the cloud's ca.crt" in capsys.readouterr().out


def test_a_revocation_makes_nothing_and_says_the_next_step(tmp_path, capsys):
    """Options of new files beside it were ignored, and it told to copy files that were not there."""
    folder = str(tmp_path / "tls")
    assert main(["certs", folder, "--leaves", "1", "--nodes", "1"]) == 0
    for words in (["--leaves", "2"], ["--nodes", "1"], ["--at", "1"], ["--hosts", "cloud=one.example"]):
        assert main(["certs", folder, "--revoke", "leaf-0", *words]) == 4
        assert f"--revoke must be given alone, but {words[0]}" in capsys.readouterr().err
    assert (tmp_path / "tls" / "leaf-0.crt").exists()
    assert main(["certs", folder, "--revoke", "node-0"]) == 0
    assert "node-0 is revoked; delete its public key at the SuperLink" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "telling"),
    [
        (["--at", "1/0"], "--at must be the path of a server below the cloud"),
        (["--at", ","], "--at must be the path of a server below the cloud"),
        (["--leaves", "-1"], "--leaves must be 0 to 10000, but is -1"),
        (["--days", "0"], "--days must be 1 to 3650, but is 0"),
        (["--hosts", "cloud=bücher"], "--hosts must be names or addresses"),
        (["--hosts", "a.example"], "--hosts must begin with a role, e.g. cloud=a.example"),
        (["--revoke", "leaf-0"], "--revoke must name a certificate or node"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, capsys, words, telling):
    assert main(["certs", str(tmp_path / "tls"), *words]) == 4
    error = capsys.readouterr().err
    assert telling in error
    assert error.count("\n") == 1
