import mmap
import os
import subprocess
import sys

import pytest

from fedge.memory import measure


@pytest.fixture
def child():
    """Start a process that waits for its input to close; its command line names Flower's actor or not."""
    started = []

    def start(*words):
        process = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        process.stdout.readline()  # it runs
        started.append(process)
        return process

    yield start
    for process in started:
        process.communicate(b"\n")


def test_this_process_comes_first_as_the_server():
    first = measure()[0]
    assert (first.role, first.pid) == ("server", os.getpid())
    assert 10 < first.rss_mib < 100_000


def test_children_are_measured_by_what_they_are(child):
    other, worker = child("anything"), child("ray::ClientAppActor.run")
    found = {m.pid: m for m in measure()}
    assert (found[worker.pid].role, found[other.pid].role) == ("worker", "ray")
    assert min(m.rss_mib for m in found.values()) > 1
    roles = [m.role for m in measure()]
    assert roles == sorted(roles, key=["server", "worker", "ray"].index)


def test_a_process_that_has_ended_is_left_out():
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, but not yet collected: a zombie
    assert process.pid not in {m.pid for m in measure()}
    process.wait()


def test_memory_that_is_taken_shows():
    before = measure()[0].rss_mib
    with mmap.mmap(-1, 64 * 2**20) as block:  # new pages: an ordinary array might get what was freed before
        block.write(b"x" * len(block))
        assert measure()[0].rss_mib - before > 50


def test_descriptors_that_are_opened_show(tmp_path):
    before = measure()[0].fds
    files = [(tmp_path / str(n)).open("w") for n in range(5)]
    assert measure()[0].fds == before + 5
    for file in files:
        file.close()
    assert measure()[0].fds == before
