"""Memory that PyTorch has freed stays with the process, also that of threads."""

import subprocess
import sys

import pytest

FREED = """
import ctypes, os, resource, threading, torch
from fedge.training.host import keep_freed_memory

faults = []

def work():
    for _ in range(5):  # 180 MiB at a time, what three heaps of a thread's hold
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        blocks = [torch.ones(3 * 2**18) for _ in range(60)]
        while blocks:
            blocks.pop()
        faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

def thresholds():
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(-3, 32 * 2**20)
    mallopt(-1, 512 * 2**20)

for begin in (keep_freed_memory, thresholds):  # each in a process of its own
    if os.fork() == 0:
        begin()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        print(sum(faults[3:]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
@pytest.mark.extended
def test_a_thread_keeps_what_it_has_freed():
    """Pages of 4 KiB that two passes of 46,080 fault in; with thresholds alone, heaps are handed back."""
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    kept, thresholds = map(int, done.stdout.split())
    assert kept < 200
    assert thresholds > 1_200
