"""Room for a process's memory: a limit on its address space (`ulimit -v`, RLIMIT_AS), looked at before work.

SciPy's OpenBLAS takes 32 MiB for each of its threads when it is loaded. Where the system has none, it asks
again without end and holds Python's lock meanwhile: no signal, no thread of Python's ends such a process. So
under a limit it is loaded first of all, when its room is known to be there.
"""

import math
import mmap
import os
from contextlib import suppress

from fedge.config.option import ConfigError
from fedge.process.threads import available_cores

BARE_MIB = 1536  # a run of small models with one thread of OpenBLAS's takes 1,290 MiB of addresses
THREAD_MIB = 80  # of a further one: a stack and a buffer, in NumPy's copy and in SciPy's
_BLAS_MIB = 40  # for a thread of SciPy's copy alone
_MIB = 2**20
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")  # that OpenBLAS obeys, the first before the second


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
    """Refuse to load libraries in too small an address space; under a limit that will do, load SciPy's first.

    Raises:
        ConfigError: the limit is too small for any run, or too little of it is left.
    """
    limit, needed = limit_mib(), needed_mib()
    if limit == math.inf:
        return
    if limit < needed:
        raise _little(f"at least {needed} MiB for a run with {blas_threads()} threads of OpenBLAS", limit)
    wanted = _BLAS_MIB * (blas_threads() + 1)
    if not _fits(wanted * _MIB):
        raise _little(f"such that {wanted} MiB are left for SciPy's OpenBLAS", limit)
    import scipy.linalg  # noqa: F401 - held from now on


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
