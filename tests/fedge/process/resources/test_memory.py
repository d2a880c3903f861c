import json
import mmap
import os
import subprocess
import sys
import threading

import pytest

from fedge.process.resources.memory import MemoryWatch, ProcessMemory, measure, sort_processes, with_cuda


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
    other, worker, rays = child("anything"), child("ray::ClientAppActor.run"), child("ray::IDLE")
    agent = child("/site-packages/ray/dashboard/agent.py")
    of_an_account = child("/home/ray/data.csv")  # of Ray's own images, or of an environment of this name
    found = {m.pid: m for m in measure()}
    roles = [found[p.pid].role for p in (worker, rays, agent, other, of_an_account)]
    assert roles == ["worker", "ray", "ray", "other", "other"]
    assert min(m.rss_mib for m in found.values()) > 1
    roles = [m.role for m in measure()]
    assert roles == sorted(roles, key=["server", "worker", "ray", "other"].index)


def test_memory_of_its_own_is_part_of_what_is_resident(child):
    """A child that has only just started shares its libraries with others, or has little of its own."""
    process = child("anything")
    for found in measure(with_uss=True):
        if found.pid in (os.getpid(), process.pid):
            assert 0 < found.uss_mib <= found.rss_mib + 1
    assert all(found.uss_mib is None for found in measure())


def test_a_worker_of_a_cluster_measures_itself_what_trains_for_it_and_rays_own_beside_it():
    """A made-up raylet has a worker, which starts a trainer, beside another worker and an agent."""
    start = (
        "def start(word):\n"
        "    words = [sys.executable, '-c', 'print(flush=True); input()', word]\n"
        "    process = subprocess.Popen(words, stdin=-1, stdout=-1)\n"
        "    process.stdout.readline()  # it runs\n"
        "    return process\n"
    )
    worker = (
        "import subprocess, sys, json; from fedge.process.resources.memory import measure_worker\n" + start +
        "one = start('fedge.parallel' + '.member')\n"
        "print(json.dumps([(p.role, p.rss_mib > 1) for p in measure_worker()])); one.kill()"
    )  # fmt: skip
    raylet = (
        "import ctypes, subprocess, sys; ctypes.CDLL(None).prctl(15, b'raylet', 0, 0, 0)\n" + start +
        "others = [start('ray::Client' + 'AppActor'), start('agent')]\n"
        f"subprocess.run([sys.executable, '-c', {worker!r}]); [one.kill() for one in others]"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", raylet], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [["worker", True], ["trainer", True], ["ray", True], ["ray", True]]


def test_processes_of_other_machines_come_after_those_of_the_server():
    here, there = (
        ProcessMemory("worker", 9, 1.0),
        ProcessMemory("worker", 7, 1.0, machine="b", number=1 << 30),
    )
    server = ProcessMemory("server", 8, 1.0)
    assert sort_processes([there, here, server]) == [server, here, there]
    assert [one.known_as for one in (here, there)] == [9, 1 << 30]
    (found,) = with_cuda([there], {7: (9.0, 9.0), 1 << 30: (1.0, 2.0)})
    assert (found.cuda_allocated_mib, found.cuda_reserved_mib) == (1.0, 2.0)


def test_threads_that_are_started_show():
    before, leave = measure()[0].threads, threading.Event()
    threads = [threading.Thread(target=leave.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert measure()[0].threads == before + 3
    leave.set()
    for thread in threads:
        thread.join()


def test_memory_of_its_own_is_measured_for_a_thousandth_of_the_time(monkeypatch):
    """Measuring takes 0.5 s by this clock: once at 10, and not before 510."""
    times = iter([10.0, 10.5, 11.0, 509.0, 510.5, 512.5, 1400.0])
    asked = []
    monkeypatch.setattr(
        "fedge.process.resources.memory.measure", lambda with_uss: asked.append(with_uss) or []
    )
    watch = MemoryWatch(lambda: next(times))
    for _ in range(5):
        watch.measure()
    assert asked == [True, False, False, True, False]


def test_what_clients_say_of_their_gpu_goes_to_their_process():
    processes = [ProcessMemory("server", 1, 10.0), ProcessMemory("worker", 2, 20.0)]
    server, worker = with_cuda(processes, {2: (3.0, 4.0), 5: (1.0, 1.0)})
    assert server == processes[0]
    assert (worker.rss_mib, worker.cuda_allocated_mib, worker.cuda_reserved_mib) == (20.0, 3.0, 4.0)


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
