"""Processes that a test has started, at whatever depth: they inherit a mark in their environment.

Other tests, and other people, have processes of the same names on the same machine.
"""

import time

import psutil

MARK = "FEDGE_TEST_RUN"


def leftovers(mark, wait_s=60.0):
    """The processes started with `mark` as their FEDGE_TEST_RUN that still live after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while (found := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def marked(mark):
    """The living processes that were started with `mark` as their FEDGE_TEST_RUN."""
    return [process for process in psutil.process_iter() if _mark(process) == str(mark)]


def _mark(process):
    """The mark of a process; None for others, and for those that have just ended."""
    try:
        return process.environ().get(MARK)
    except psutil.Error:
        return None
