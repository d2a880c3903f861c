"""The command ``fedge leaf`` and --leaves: what cannot be is refused in one line."""

import pytest

from fedge.cli import main


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "telling"),
    [
        (["leaf", "-1", "--cloud", "127.0.0.1:1"], "must be 0 or more, but is -1"),
        (["leaf", "0", "--cloud", "127.0.0.1:1", "--workers", "0"], "--workers must be at least 1, but is 0"),
        (["leaf", "0", "--cloud", "127.0.0.1:1", "--wait", "0"], "--wait must be above 0 seconds"),
        (["leaf", "0", "--cloud", "127.0.0.1:1"], "leaf-0.crt must exist for TLS"),
        (
            ["leaf", "0", "--cloud", "127.0.0.1:1", "--nodes", "127.0.0.1:2", "--workers", "1"],
            "remove it, or --nodes",
        ),
        (
            ["leaf", "0", "--cloud", "127.0.0.1:1", "--nodes", "127.0.0.1:2", "--data", "x.npz"],
            "--data is for clients that are threads",
        ),
        (["leaf", "--cloud", "127.0.0.1:1"], "needs the number of the leaf server"),
        (["leaf", "0", "--at", "1", "--cloud", "127.0.0.1:1"], "needs the number of the leaf server"),
        (["leaf", "--at", "1..0", "--cloud", "127.0.0.1:1"], "--at must be the path of a server below"),
        (["leaf", "--at", "1.0", "--cloud", "127.0.0.1:1"], "server-1.0.crt must exist for TLS"),
        (
            ["leaf", "--at", "1", "--cloud", "127.0.0.1:1", "--nodes", "127.0.0.1:2"],
            "with --nodes, start one fedge leaf for each",
        ),
        (["run", "--owners"], "--owners needs leaf servers, but there are none; add --leaves"),
        (["run", "--leaves", "127.0.0.1:0", "--engine", "flower"], "--leaves and --engine flower exclude"),
        (["run", "--leaves", "127.0.0.1:0", "--workers", "2"], "--workers belongs to fedge leaf"),
        (["run", "--leaves", "127.0.0.1:0"], "cloud.crt must exist for TLS"),
        (["run", "--leaves", "localhost"], "--leaves must be HOST:PORT"),
        (["run", "--leaves", "4"], "use -c 'hierarchy.num-servers=4'"),
        (["run", "--leaves", "0.0.0.0:99999"], "--leaves must be HOST:PORT"),
        (["run", "--leaves", "::1:9555"], "--leaves must be HOST:PORT"),
    ],
    ids=" ".join,
)
def test_refusals_are_one_line(tmp_path, monkeypatch, capsys, words, telling):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 4
    error = capsys.readouterr().err
    assert telling in error
    assert error.count("\n") == 1
