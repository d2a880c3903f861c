"""How a SuperNode's ClientApps come from a process that is loaded: whole ones are in tests/deployed."""

import os
import signal
import subprocess
import sys

import pytest

from fedge.launch.nodes import node
from fedge.launch.nodes.client_apps import SEPARATOR


@pytest.fixture
def orders(tmp_path):
    """The reading end of a node's pipe; the signals of ended processes are as before in the end."""
    before, reading = signal.getsignal(signal.SIGCHLD), node._write_forwarder(tmp_path)
    yield reading
    os.close(reading)
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no stand-in")
def test_the_program_that_stands_first_hands_over_its_words(tmp_path):
    orders = node._write_forwarder(tmp_path)
    words = ["--token", "a b", "--flwr-dir", "/x'y", ""]
    try:
        subprocess.run([tmp_path / "flwr-clientapp", *words], check=True, timeout=10)
        line = os.read(orders, 4096).decode()
    finally:
        os.close(orders)
    assert line.endswith("\n")
    assert line[:-1].split(SEPARATOR) == words


def test_the_program_of_flower_is_there():
    assert node._load_client_app().__name__ == "flwr_clientapp"


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("ERROR : Failed to receive message 29: UNKNOWN", node._LOST),
        ("ERROR : Failed to send message 29: Start time or end time for message 3 is missing.", node._LOST),
        ("SuperNode ID: 7\nException: Node ID 18446744073709551615 not found", node._FORGOTTEN),
        ("SuperNode ID: 7\nHTTPStatusError: Client error '401 Unauthorized' for url", node._FORGOTTEN),
        ("HTTPStatusError: Client error '401 Unauthorized' for url", 7),
        ("SuperNode with node ID 7 could not be activated.", node._REFUSED),
        ("goodbye", 7),
    ],
    ids=["lost", "reply lost", "forgotten", "forgotten, 1.42", "never admitted", "refused", "ended"],
)
def test_a_supernode_that_has_lost_a_message_waits_for_ever_and_is_ended(orders, capfd, says, expected):
    """Its output is passed on."""
    then = "time.sleep(600)" if expected in (node._LOST, node._FORGOTTEN) else "sys.exit(7)"
    code = f"import sys, time; print({says!r}, file=sys.stderr, flush=True); {then}"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    try:
        assert node._serve(process, orders) == expected
    finally:
        node._end_supernode(process)
    assert process.poll() is not None
    assert says in capfd.readouterr().err


@pytest.mark.parametrize(
    ("last", "has_one_port", "expected"),
    [
        ("'401 Unauthorized'", True, node._FORGOTTEN),
        ("SuperNode terminated gracefully.", True, node._FORGOTTEN),
        ("SuperNode terminated gracefully.", False, 0),
    ],
)
def test_a_supernode_that_ends_as_it_is_forgotten_is_restarted(
    orders, monkeypatch, last, has_one_port, expected
):
    """Flower 1.42 ends before all that it says has been read."""
    monkeypatch.setattr(node, "has_one_port", lambda: has_one_port)
    code = f"import sys; print('SuperNode ID: 7\\n' + 'x' * 9000 + {last!r}, file=sys.stderr)"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    process.wait(60)
    assert node._serve(process, orders) == expected


@pytest.mark.parametrize(("refused", "patience_s", "expected"), [(2, 60.0, 0), (10**6, 0.0, 7)])
def test_a_supernode_whose_old_self_is_there_is_started_again(
    orders, tmp_path, monkeypatch, capfd, refused, patience_s, expected
):
    """Until it is let in, or for so long; one line says so."""
    counter = tmp_path / "starts"
    counter.write_text("")
    program = tmp_path / "supernode.py"
    program.write_text(
        f"""
import pathlib, sys
starts = pathlib.Path({str(counter)!r})
starts.write_text(starts.read_text() + ".")
if len(starts.read_text()) <= {refused}:
    print("ValueError: SuperNode with node ID 7 could not be activated.", file=sys.stderr)
    sys.exit(7)
"""
    )

    def start(words, folder):
        return subprocess.Popen([sys.executable, str(program)], stderr=subprocess.PIPE)

    monkeypatch.setattr(node, "_start_supernode", start)
    monkeypatch.setattr(node, "_RESTART_S", 0.01)
    monkeypatch.setattr(node, "_PATIENCE_S", patience_s)
    assert node._serve_with_restarts([], tmp_path, orders) == expected
    assert len(counter.read_text()) == (3 if expected == 0 else 2)
    assert capfd.readouterr().out.count("considers this SuperNode's predecessor present") == 1
