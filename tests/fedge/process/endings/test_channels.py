"""A process ends although a thread that is gone holds the lock of a gRPC channel."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from daily import daily

import fedge

END = """
import threading, grpc
channel = grpc.insecure_channel("127.0.0.1:9")
for lock in (channel._connectivity_state.lock, channel._call_state.lock):
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
print("at its end", flush=True)
"""
HERE = "from fedge.process.endings.channels import exit_despite_channels; exit_despite_channels()"
COMMAND = (
    "import sys; sys.argv = ['fedge', 'methods']; from fedge import cli; sys.stdout = sys.stderr; "
    "cli.main(); sys.stdout = sys.__stdout__"
)
APPS = sorted(
    path.stem
    for path in Path(fedge.__file__).parent.glob("*.py")
    if re.search(r"^app = \w+App\(\)$", path.read_text(), re.MULTILINE)
)  # entries of Flower, in processes that it starts


def ended(before, patience_s):
    """Exit code of a process that carries out `before` and leaves a channel locked; None if it hangs."""
    words = [sys.executable, "-c", before + END]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "at its end\n"
            return process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()


def test_grpc_still_waits_for_ever():
    """Otherwise the module can go."""
    assert ended("", 3.0) is None


def test_flowers_entries_are_found():
    assert {"client_app", "leaf_app", "server_app"} <= set(APPS)


@pytest.mark.parametrize(
    "before", daily([HERE, COMMAND, *(f"import fedge.{name}" for name in APPS)], [HERE, COMMAND])
)
def test_processes_of_flower_end(before):
    assert ended(before, 60.0) == 0


def test_a_process_without_grpc_ends():
    assert subprocess.run([sys.executable, "-c", HERE], check=False, timeout=60).returncode == 0
