"""Descriptors that one process lends to another, which it has not started."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from fedge.config.registers.option import ConfigError
from fedge.process import lent_output
from fedge.process.lent_output import VARIABLE, borrow_output, lend_output

BORROW = """
import os, sys
from fedge.process.lent_output import borrow_output
print("before", flush=True)
there = borrow_output()
os.write(1, f"out {there} {os.isatty(1)}\\n".encode())
os.write(2, b"error\\n")
"""
LEND = """
import subprocess, sys
from pathlib import Path
from fedge.process.lent_output import VARIABLE, lend_output
path = Path(sys.argv[1])
with lend_output(path):
    subprocess.run([sys.executable, "-c", sys.argv[2]], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, env={VARIABLE: str(path)}, check=True)
print(path.exists())
"""


def test_what_a_borrower_prints_is_the_lenders(tmp_path):
    """Both descriptors; what it printed before went where it was told to."""
    words = [sys.executable, "-c", LEND, str(tmp_path / "socket"), BORROW]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "out True False\nFalse\n"
    assert done.stderr == "error\n"


def test_a_terminal_stays_a_terminal(tmp_path):
    ours, theirs = os.openpty()
    words = [sys.executable, "-c", LEND, str(tmp_path / "socket"), BORROW]
    subprocess.run(words, stdout=theirs, stderr=subprocess.DEVNULL, check=True)
    assert b"out True True" in os.read(ours, 1000)
    os.close(ours)
    os.close(theirs)


def test_without_a_lender_nothing_changes(tmp_path):
    assert borrow_output({}) is False
    assert borrow_output({VARIABLE: str(tmp_path / "nobody")}) is False


def test_only_this_user_may_borrow(tmp_path):
    path = tmp_path / "socket"
    with lend_output(path):
        assert path.stat().st_mode & 0o077 == 0


# --- borrowers and lenders that are odd ------------------------------------------------------------------


def test_a_borrower_that_hangs_up_costs_the_next_one_nothing(tmp_path, monkeypatch):
    """Before it is given anything."""
    path, gone, send = tmp_path / "socket", threading.Event(), socket.send_fds
    monkeypatch.setattr(lent_output.socket, "send_fds", lambda *given: gone.wait(10) and send(*given))
    with lend_output(path):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(path))
        gone.set()
        assert lends(path)


def lends(path):
    """Whether both descriptors are lent."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(10)
        one.connect(str(path))
        _, found, _, _ = socket.recv_fds(one, 1, 9)
    for each in found:
        os.close(each)
    return len(found) == 2


def descriptors():
    """This process's open descriptors, and what they are."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux tells what descriptors there are")
@pytest.mark.parametrize("sends", [0, 1, None], ids=["none", "one", "silent"])
def test_of_a_lender_that_sends_anything_else_nothing_is_taken(tmp_path, monkeypatch, sends):
    monkeypatch.setattr(lent_output, "_WAIT_S", 0.3)
    path, over = tmp_path / "socket", threading.Event()
    with socket.socket(socket.AF_UNIX) as listener, open(tmp_path / "other", "wb") as other:
        listener.bind(str(path))
        listener.listen()

        def lend():
            connection, _ = listener.accept()
            with connection:
                if sends is not None:
                    socket.send_fds(connection, [b"o"], [other.fileno()] * sends)
                over.wait(10)

        thread = threading.Thread(target=lend)
        before = descriptors()
        thread.start()
        assert borrow_output({VARIABLE: str(path)}) is False
        over.set()
        thread.join()
        assert descriptors().items() <= before.items()
        assert before["1"] == descriptors()["1"]


@pytest.mark.parametrize("name", ["x" * 200, "no/folder"])
def test_where_there_can_be_no_socket_it_is_one_line(tmp_path, name):
    with pytest.raises(ConfigError, match="TMPDIR must be") as caught, lend_output(tmp_path / name):
        pass
    assert "\n" not in str(caught.value)


def test_a_path_that_is_taken_is_left_alone(tmp_path):
    (tmp_path / "socket").write_text("somebody's")
    with pytest.raises(ConfigError, match="TMPDIR must be"), lend_output(tmp_path / "socket"):
        pass
    assert (tmp_path / "socket").read_text() == "somebody's"
