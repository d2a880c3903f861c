"""The command ``fedge node``: what flower-supernode is told, and what is refused in one line."""

import pytest

from fedge.cli import _build_parser, main
from fedge.launch.command_line import parse_command_line
from fedge.launch.nodes import node
from fedge.launch.nodes.node_command import node_arguments
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.reach import free_port

NODE = ["node", "1", "--of", "3", "--superlink", "127.0.0.1:1"]


def test_flowers_words_for_partition_and_windows(tmp_path):
    options = parse_command_line(_build_parser(), [*NODE, "--data-folder", str(tmp_path)])
    assert node_arguments(options) == [
        "--superlink", "127.0.0.1:1",
        "--node-config", f'partition-id=1 num-partitions=3 data-folder="{tmp_path}"',
    ]  # fmt: skip


def test_a_data_set_goes_by_its_name_and_a_file_by_its_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.npz").touch()
    told = [
        node_arguments(parse_command_line(_build_parser(), [*NODE, "--data", name]))[-1]
        for name in ("synthetic", "mine.npz")
    ]
    assert told[0].endswith(' data="synthetic"')
    assert told[1].endswith(f' data="{tmp_path}/mine.npz"')


@pytest.mark.parametrize(
    ("words", "telling"),
    [
        (["node", "3", "--of", "3", "--superlink", "h:1", "--data", "x"], "must be 0 to 2 with --of 3"),
        ([*NODE, "--data-folder", "nowhere"], "--data-folder must exist"),
        ([*NODE, "--own-data", "nowhere.npz"], "--own-data must exist"),
        (
            [*NODE, "--data", "synthetic"],
            "certs must have ca.crt, but certs/ca.crt is missing; create it: fedge certs",
        ),
        ([*NODE, "--data", "x", "--supernode=--isolation process"], "--isolation is for flower-supernode"),
        ([*NODE, "--data", 'x"y'], "must not contain quotation marks"),
    ],
    ids=lambda value: " ".join(value[4:]) if isinstance(value, list) else "",
)
def test_refusals_are_one_line(tmp_path, monkeypatch, capsys, words, telling):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 4
    error = capsys.readouterr().err
    assert telling in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("host", "why"), [("no-such.invalid", "not known"), ("127.0.0.1", "Connection refused")]
)
def test_a_superlink_that_is_not_reached_is_told_with_the_reason(tmp_path, monkeypatch, capsys, host, why):
    """The node keeps trying, as its SuperLink may start later; a typing error must show at once."""
    make_certificates(tmp_path, CertificateRequest({"superlink": ()}))
    monkeypatch.setattr(node, "serve_node", lambda words, owns_process: 0)
    address = f"{host}:{free_port()}"
    words = ["node", "1", "--of", "3", "--superlink", address, "--data", "synthetic"]
    assert main([*words, "--certs", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    before, _, after = told.partition(why)
    assert before.startswith(f"no SuperLink at {address} yet (")
    assert after == "); the node keeps trying\n"
