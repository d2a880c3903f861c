"""Room for a process's memory and files: limits of the system, looked at before work, or named after it.

A limit on the address space (`ulimit -v`, RLIMIT_AS): SciPy's OpenBLAS takes 32 MiB for each of its threads
when it is loaded. Where the system has none, it asks again without end and holds Python's lock meanwhile: no
signal, no thread of Python's ends such a process. So under a limit it is loaded first of all, when its room
is known to be there.
"""

import errno
import math
import mmap
import os
from contextlib import suppress

from fedge.config.option import ConfigError
from fedge.process.threads import available_cores

BARE_MIB = 1536  # a run of small models with one thread of OpenBLAS's takes 1,290 MiB of addresses
LEAST_FILES = 64  # open at a time; a small run in this process has fewer than 24
THREAD_MIB = 80  # of a further one: a stack and a buffer, in NumPy's copy and in SciPy's
_BLAS_MIB = 40  # for a thread of SciPy's copy alone
_MIB = 2**20
_OF_FILES = (errno.EMFILE, errno.ENFILE)
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")  # obeyed by OpenBLAS, the first before the second


def limit_mib() -> float:
    """Limit of this process's address space, MiB; infinity where there is none."""
    with suppress(ImportError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        return math.inf if limit == resource.RLIM_INFINITY else limit / _MIB
    return math.inf


def blas_threads() -> int:
    """Threads that OpenBLAS begins in this process: one per core, or as its variables say."""
    for name in _THREADS:
        told = os.environ.get(name, "")
        if told.isdecimal() and int(told):
            return min(int(told), available_cores())
    return available_cores()


def needed_mib() -> int:
    """Address space that a run takes at least, MiB."""
    return BARE_MIB + THREAD_MIB * (blas_threads() - 1)


def refuse_little_room() -> None:
    """Refuse to load libraries in too small an address space, or with too few files open at a time.

    Under a limit of the address space that will do, SciPy's are loaded first.

    Raises:
        ConfigError: a limit is too small for any run, or too little of the address space is left.
    """
    _refuse_few_files()
    limit, needed = limit_mib(), needed_mib()
    if limit == math.inf:
        return
    if limit < needed:
        raise _little(f"at least {needed} MiB for a run with {blas_threads()} threads of OpenBLAS", limit)
    wanted = _BLAS_MIB * (blas_threads() + 1)
    if not _fits(wanted * _MIB):
        raise _little(f"such that {wanted} MiB are left for SciPy's OpenBLAS", limit)
    import scipy.linalg  # noqa: F401 - held from now on


def _refuse_few_files() -> None:
    with suppress(ImportError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit != resource.RLIM_INFINITY and limit < LEAST_FILES:
            raise ConfigError(
                f"open files (ulimit -n) must be at least {LEAST_FILES}, but are {limit}; allow more"
            )


def _fits(size: int) -> bool:
    """Whether so many bytes of addresses are to be had now; none is touched, and all are given back."""
    try:
        mmap.mmap(-1, size).close()
    except (OSError, MemoryError):
        return False
    return True


def _little(rule: str, limit: float) -> ConfigError:
    return ConfigError(
        f"the limit of the address space (ulimit -v) must be {rule}, but is {limit:.0f} MiB; raise it, or "
        f"have fewer threads: export {_THREADS[0]}=1"
    )


def remedy(error: BaseException) -> str:
    """Remedy for a file that could not be written: room on the disk, or more files at a time."""
    is_of_files = isinstance(error, OSError) and error.errno in _OF_FILES
    return "allow more open files (ulimit -n)" if is_of_files else "make room"
