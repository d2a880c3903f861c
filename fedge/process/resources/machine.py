"""Cores, memory and limits of this machine, as granted to this process by a container or batch system."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from fedge.process.resources.room import limit_mib
from fedge.process.resources.threads import available_cores
from hhar.quantity import quantity

_MIB = 2**20
_NO_LIMIT = 2**60  # bytes; cgroups of version 1 report about this number without a limit
CGROUPS = Path("/sys/fs/cgroup")
_SHM = Path("/dev/shm")
_TIMES = (
    2.5  # runs estimated at 13 and 21 models took at most 18 (docs/memory.md); with a reserve for other uses
)


@dataclass(frozen=True)
class Machine:
    """Cores, memory, disk and GPUs of this machine.

    Attributes:
        cores: cores of the machine.
        usable_cores: cores this process may use, by its affinity and its cgroup's quota; may be fractional.
        memory_mib: MiB of memory, or the cgroup's limit if lower.
        available_mib: MiB available now, including those that file caches would release.
        cgroup: limits of this process below the machine's, in words; empty if there are none.
        shm_mib: MiB free in /dev/shm, through which Ray passes arrays; None if there is none.
        open_files: limit of open file descriptors of this process; None if unknown.
    """

    cores: int
    usable_cores: float
    memory_mib: float
    available_mib: float
    cgroup: str = ""
    shm_mib: float | None = None
    open_files: int | None = None


def this_machine(cgroups: Path = CGROUPS, own_cgroups: Path = Path("/proc/self/cgroup")) -> Machine:
    """This machine; `cgroups` and `own_cgroups` are the kernel's files on this process's limits."""
    memory = psutil.virtual_memory()
    quota, limit, free = limits(cgroups, own_cgroups)
    cores = min(float(available_cores()), quota or float("inf"))
    total, available = memory.total / _MIB, memory.available / _MIB
    limit_texts = [quantity(round(quota, 6), "core")] if quota else []
    if limit is not None and limit < total:
        total = limit
        limit_texts.append(f"{limit:,.0f} MiB")
    available = min(available, total if free is None else free)
    shm = shutil.disk_usage(_SHM).free / _MIB if _SHM.is_dir() else None
    return Machine(os.cpu_count() or 1, cores, total, available, ", ".join(limit_texts), shm, _open_files())


class _ConcurrentRuns:
    """Number of runs that may be in progress at the same time."""

    runs = 1


def share_memory(runs: int) -> None:
    """Limit this process to one share of the free memory among `runs` concurrent runs."""
    _ConcurrentRuns.runs = runs


def fits_in_memory(num_bytes: float) -> bool:
    """Whether this process's share of the free memory is at least 2.5 times `num_bytes` bytes.

    A limit of the address space counts, too.
    """
    free_mib = min(this_machine().available_mib, limit_mib())
    return num_bytes * _TIMES * _ConcurrentRuns.runs <= free_mib * _MIB


def limits(cgroups: Path, own_cgroups: Path) -> tuple[float | None, float | None, float | None]:
    """Limits from this process's cgroups: cores, MiB of memory, and MiB still free; None without a limit.

    The lowest limit of the cgroup and its ancestors applies, and the least free memory in any of them,
    because others may share an ancestor. The kernel counts pages of files as used, but frees them before it
    refuses memory, so they count as free here, as in the machine's own MemAvailable.
    """
    cores: list[float] = []
    memory: list[float] = []
    free: list[float] = []
    for folder in _cgroup_folders(cgroups, own_cgroups):
        quota, period = _read_two_words(folder / "cpu.max") or _quota_of_v1(folder)
        if quota.isdecimal() and period.isdecimal() and int(period):
            cores.append(int(quota) / int(period))
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _read_number(folder / limit_name), _read_number(folder / used_name)
            if limit is not None and limit < _NO_LIMIT:
                memory.append(limit / _MIB)
                free.append(max(0, limit - max(0, (used or 0) - _reclaimable(folder))) / _MIB)
    return min(cores, default=None), min(memory, default=None), min(free, default=None)


def _cgroup_folders(cgroups: Path, own_cgroups: Path) -> list[Path]:
    """Folders of this process's cgroups and of all their ancestors, versions 1 and 2."""
    folders = [cgroups, cgroups / "cpu", cgroups / "memory"]  # as mounted in containers
    with suppress(OSError):
        for line in own_cgroups.read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            for top in (cgroups / kinds if kinds else cgroups,):
                folder = top / path.lstrip("/")
                folders += [folder, *(ancestor for ancestor in folder.parents if cgroups in ancestor.parents)]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _read_two_words(path: Path) -> tuple[str, str] | None:
    """The two words of a file; None if it is missing or has another number of words."""
    with suppress(OSError, ValueError):
        first, second = path.read_text(encoding="utf-8").split()
        return first, second
    return None


def _reclaimable(folder: Path) -> int:
    """Bytes of file pages in a cgroup and its descendants, which the kernel can free; 0 if unknown."""
    entries: dict[str, str] = {}
    with suppress(OSError, ValueError):
        entries = dict(line.split() for line in (folder / "memory.stat").read_text("utf-8").splitlines())
    prefix = "total_" if "total_cache" in entries else ""  # version 1 also has values without descendants
    sizes = [entries.get(f"{prefix}{kind}_file", "") for kind in ("active", "inactive")]
    return sum(int(size) for size in sizes if size.isdecimal())


def _quota_of_v1(folder: Path) -> tuple[str, str]:
    """Quota and period of a version 1 cgroup, as text."""
    values = [_read_number(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    return "-" if values[0] is None or values[0] < 0 else str(values[0]), str(values[1] or "-")


def _read_number(path: Path) -> int | None:
    """The whole number in a file; None if the file has none or is missing."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="utf-8"))
    return None


def _open_files() -> int | None:
    """Limit of open file descriptors of this process; None if unknown."""
    with suppress(ImportError):
        import resource

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None
