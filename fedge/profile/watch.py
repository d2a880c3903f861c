"""Memory of a run's processes by role, sampled from outside during the run.

RSS counts shared pages (libraries, mapped windows, Ray's object store) in each process. USS counts only
private pages, which the machine gets back when the process ends.
"""

import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from fedge.config.registers.engines import engine_argument
from fedge.process.resources.memory import TRAINER, is_rays_own

_SAMPLE_S = 0.2
_MIB = 2**20

# trainer: trains for a worker (train.processes); ray: Ray's own processes; launcher: waits for the others
ROLES = ("server", "worker", "trainer", "ray", "launcher")


@dataclass(frozen=True)
class Sample:
    """All processes of a role at one moment.

    seconds: seconds since the start.
        seconds: since the start.
        role: one of `ROLES`.
        processes: number of processes.
        rss_mib, uss_mib: sums over processes, in MiB.
        largest_rss_mib: MiB of the largest process.
    """

    seconds: float
    role: str
    processes: int
    rss_mib: float
    uss_mib: float
    largest_rss_mib: float


def run_watched(command: Sequence[str], **options: Any) -> tuple[int, list[Sample]]:
    """Carry out a command, and sample the memory of its processes; returns its exit code and the samples.

    Args:
        command: the command.
        options: passed to `subprocess.Popen`.
    """
    samples: list[Sample] = []
    process = subprocess.Popen(command, **options)
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(process.pid, samples, stop), name="watch", daemon=True)
    thread.start()
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        stop.set()
        thread.join()
    return code, samples


def _watch(pid: int, samples: list[Sample], stop: threading.Event) -> None:
    """Take samples until the process has ended."""
    started = time.monotonic()
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        while not stop.wait(_SAMPLE_S):
            samples += sample([root, *root.children(recursive=True)], pid, time.monotonic() - started)


def sample(processes: Sequence[psutil.Process], root: int, seconds: float) -> list[Sample]:
    """A sample per role, `seconds` after the start; processes ending meanwhile are left out."""
    sizes: dict[str, list[tuple[float, float]]] = {}
    for process in processes:
        with suppress(psutil.Error):
            full = process.memory_full_info()
            role = process_role(process.name(), process.cmdline(), process.pid == root)
            sizes.setdefault(role, []).append((full.rss / _MIB, full.uss / _MIB))
    return [
        Sample(
            seconds, role, len(memory), sum(r for r, _ in memory), sum(u for _, u in memory), max(memory)[0]
        )
        for role, memory in sorted(sizes.items(), key=lambda item: ROLES.index(item[0]))
    ]


def process_role(name: str, command: Sequence[str], is_root: bool) -> str:
    """Role of a process in a run.

    Args:
        name: name of the process.
        command: command line.
        is_root: whether it is the process that was started.
    """
    line = " ".join(command)
    if TRAINER in line:
        return "trainer"
    if "ClientAppActor" in line:
        return "worker"
    if "flower-simulation" in line or "flwr-simulation" in line:
        return "server"
    if name in ("raylet", "gcs_server") or is_rays_own(line):
        return "ray"
    engine = engine_argument(command)
    return "launcher" if not is_root or (engine is not None and engine.on_ray) else "server"


def peaks(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Role → largest number of each kind, each at its own moment."""
    by_role: dict[str, dict[str, float]] = {}
    for each in samples:
        numbers = asdict(each)
        peak = by_role.setdefault(numbers.pop("role"), {})
        for name in ("processes", "rss_mib", "uss_mib", "largest_rss_mib"):
            peak[name] = max(peak.get(name, 0.0), numbers[name])
    return by_role
