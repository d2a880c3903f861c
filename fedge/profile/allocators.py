"""Places in the code that hold memory at a process's peak, from a capture of memray.

memray counts requested rather than resident memory, including pages never touched, and gigabytes only
reserved by the server's process for Ray's object store. So mapped memory is listed separately from the heap,
and Ray's store is left out. To compare the memory of two runs, use RSS and USS (`fedge.profile.watch`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_MIB = 2**20
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/([^/.]+)")
_STANDARD = re.compile(r".*/lib/python\d\.\d+/([^/.]+)")
_OWN_PACKAGES = ("fedge", "hhar")
_TOP = 40
_RAY_STORE = "connect in ray/_private/worker.py"
_CLIENT_THREAD = "client"  # name of clients' threads, from `fedge.engine.workers`

Frame = tuple[str, str, int]  # function, file, line


@dataclass(frozen=True)
class Allocator:
    """A place in the code, and its memory.

    Attributes:
        by_client: whether a client's thread allocated it, if server and clients are in one process.
        what: function and file; for memory allocated while loading a module, the import.
        via: innermost function of Fedge on the way there, or empty.
        heap_mib: MiB by malloc and the like.
        mapped_mib: MiB by mmap: files, shared memory, and blocks mapped by Python or a library.
        count: number of allocations.
    """

    by_client: bool
    what: str
    via: str
    heap_mib: float
    mapped_mib: float
    count: int

    @property
    def mib(self) -> float:
        """Heap and mapped memory together."""
        return self.heap_mib + self.mapped_mib


@dataclass(frozen=True)
class Capture:
    """Memory of one process at its peak.

    Attributes:
        role: "server" or "worker".
        pid: process id.
        heap_mib, mapped_mib: totals, without Ray's store.
        client_mib: part of both allocated in clients' threads; 0 if clients have their own processes.
        store_mib: MiB reserved for Ray's object store.
        top: the largest allocators, largest first.
    """

    role: str
    pid: int
    heap_mib: float
    mapped_mib: float
    client_mib: float
    store_mib: float
    top: Sequence[Allocator]

    @property
    def mib(self) -> float:
        """Heap and mapped memory together."""
        return self.heap_mib + self.mapped_mib


def read_capture(path: Path) -> Capture:
    """Read a capture, ``ROLE-PID.bin``.

    Raises:
        OSError, ValueError: the file is not a complete capture.
    """
    import memray

    role, pid = path.stem.split("-")
    sums: dict[tuple[bool, str, str], list[float]] = {}
    store = 0.0
    with memray.FileReader(path) as reader:
        for record in reader.get_high_watermark_allocation_records(merge_threads=False):
            what, via = allocator_place(record.stack_trace())
            if what == _RAY_STORE:
                store += record.size / _MIB
                continue
            entry = sums.setdefault((record.thread_name == _CLIENT_THREAD, what, via), [0.0, 0.0, 0])
            entry[record.allocator == memray.AllocatorType.MMAP] += record.size / _MIB
            entry[2] += record.n_allocations
    allocators = [Allocator(*key, heap, mapped, int(count)) for key, (heap, mapped, count) in sums.items()]
    allocators.sort(key=lambda a: (-a.mib, a.what, a.via, a.by_client))
    return Capture(
        role=role,
        pid=int(pid),
        heap_mib=sum(a.heap_mib for a in allocators),
        mapped_mib=sum(a.mapped_mib for a in allocators),
        client_mib=sum(a.mib for a in allocators if a.by_client),
        store_mib=store,
        top=allocators[:_TOP],
    )


def allocator_place(stack: Sequence[Frame]) -> tuple[str, str]:
    """(what, via) of `Allocator` for a stack, innermost frame first."""
    if not stack:
        return "outside Python", ""
    via = next((_frame_text(frame) for frame in stack if _package(frame[1]) in _OWN_PACKAGES), "")
    if any(file.startswith("<frozen importlib") for _, file, _ in stack):
        importer = next((file for _, file, _ in stack if not file.startswith("<frozen importlib")), "")
        return f"import, by {_package(importer) or 'the program'}", ""
    what = _frame_text(stack[0])
    return what, "" if via == what else via


def _frame_text(frame: Frame) -> str:
    """A frame as "train in fedge/training/local.py", without its line, which edits change."""
    function, file, _ = frame
    return f"{function} in {_path_in_package(file)}"


def _package(file: str) -> str:
    """Top-level package of a file; empty if unknown.

    A checkout may have our package's name, and contain an environment with all others.
    """
    match = _PACKAGE.match(file) or _STANDARD.match(file)
    if match:
        return match.group(1)
    position, package = max((file.rfind(f"/{package}/"), package) for package in _OWN_PACKAGES)
    return package if position >= 0 else ""


def _path_in_package(file: str) -> str:
    """Path of a file from its package on."""
    package = _package(file)
    position = file.rfind(f"/{package}/") if package else -1
    return file[position + 1 :] if position >= 0 else Path(file).name
