"""Endless runs on Ray whose processes a test can look at, kill and count."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
from processes import MARK, leftovers, marked

ROOT = Path(__file__).parents[3]
QUICK = "report=false data.path='synthetic' train.model='linear' train.local-epochs=1"
ENDLESS = f"{QUICK} num-server-rounds=100000 train.lr-decay=1.0 guard.start-timeout=600.0"


class RayRun:
    """A run of a Flower program that goes on until somebody ends it; use as a context manager."""

    def __init__(self, folder, *words, program="flwr", mark="", **variables):
        """Start ``PROGRAM WORDS`` in the project's folder; all below carries `mark`, `folder` by default."""
        self.mark = str(mark or folder)
        self.output_path = Path(folder) / "output.txt"
        bin_folder = Path(sys.executable).parent
        environment = {
            **os.environ,
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        environment.update({MARK: self.mark, **variables})
        environment.pop("SEED", None)
        with self.output_path.open("w") as output:
            self.process = subprocess.Popen(
                [str(bin_folder / program), *map(str, words)], cwd=ROOT, env=environment, stdout=output,
                stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()  # the rest ends with it, and its reaper removes what it has left
        self.process.wait(timeout=60)
        for process in self.left():
            process.kill()

    @property
    def output(self):
        """Output so far."""
        return self.output_path.read_text()

    def wait_for(self, text, timeout=500):
        """Wait until its output holds `text`."""
        self.wait_until(lambda: text in self.output, f"{text!r} in its output", timeout)

    def wait_until(self, happened, what, timeout=500):
        """Wait for something to happen while it goes on."""
        deadline = time.monotonic() + timeout
        while not happened():
            assert self.process.poll() is None, f"ended before there was {what}: {self.output}"
            assert time.monotonic() < deadline, f"no {what} after {timeout} s: {self.output}"
            time.sleep(0.02)

    def processes(self):
        """All its living processes."""
        return marked(self.mark)

    def named(self, *words):
        """Its living processes whose command line holds one of `words`."""
        found = []
        for process in self.processes():
            try:
                line = " ".join([process.name(), *process.cmdline()])
            except psutil.Error:
                continue
            if any(word in line for word in words):
                found.append(process)
        return found

    def left(self, wait_s=60.0):
        """Processes of the run that are still there after `wait_s` seconds."""
        return leftovers(self.mark, wait_s)


def listening(processes):
    """(process name, address) of every socket on which processes listen, or receive datagrams."""
    found = set()
    for process in processes:
        with suppress(psutil.Error):
            for connection in process.net_connections(kind="inet"):
                if connection.status == psutil.CONN_LISTEN or (connection.laddr and not connection.raddr):
                    found.add((process.name(), connection.laddr.ip, connection.laddr.port))
    return found
