"""Descriptors that one process lends to another, which it has not started."""

import os
import subprocess
import sys

from fedge.process.lent import VARIABLE, borrow_output, lend_output

BORROW = """
import os, sys
from fedge.process.lent import borrow_output
print("before", flush=True)
there = borrow_output()
os.write(1, f"out {there} {os.isatty(1)}\\n".encode())
os.write(2, b"error\\n")
"""
LEND = """
import subprocess, sys
from pathlib import Path
from fedge.process.lent import VARIABLE, lend_output
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
