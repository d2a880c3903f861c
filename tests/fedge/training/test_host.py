"""Memory that PyTorch has freed stays with the process, also that of threads."""

import subprocess
import sys

import pytest

FREED = """
import ctypes, resource, sys, threading, torch
from fedge.training.host import keep_freed_memory

faults = []

def work():
    for _ in range(8):  # 180 MiB at a time, what three heaps of a thread's hold
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        blocks = [torch.ones(3 * 2**18) for _ in range(60)]
        while blocks:
            blocks.pop()
        faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

if sys.argv[1] == "kept":
    keep_freed_memory()
else:  # the thresholds alone
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(-3, 32 * 2**20)
    mallopt(-1, 512 * 2**20)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(sum(faults[3:]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_a_thread_keeps_what_it_has_freed():
    """Pages of 4 KiB that five passes of 46,080 fault in; with thresholds alone, heaps are handed back."""
    found = {}
    for what in ("kept", "thresholds"):
        done = subprocess.run([sys.executable, "-c", FREED, what], capture_output=True, text=True, check=True)
        found[what] = int(done.stdout)
    assert found["kept"] < 500
    assert found["thresholds"] > 3_000
