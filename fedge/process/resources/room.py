"""Room for a process's memory and files: system limits, checked before work or named in errors.

A limit on the address space (`ulimit -v`, RLIMIT_AS) needs care: SciPy's OpenBLAS allocates 32 MiB per thread
at import. If that fails, it retries forever while holding the interpreter lock, and neither signals nor
Python threads can end the process. So under a limit, SciPy is imported first, after a check of the available
room.
"""

import errno
import math
import mmap
import os
from contextlib import suppress

from fedge.config.registers.option import ConfigError
from fedge.process.resources.threads import available_cores

BARE_MIB = 1536  # a run of small models with one OpenBLAS thread takes 1,290 MiB
LEAST_FILES = 64  # open files; a small run in this process has fewer than 24
THREAD_MIB = 80  # per further thread: stack and buffer in NumPy's and SciPy's copies
_BLAS_MIB = 40  # per thread of SciPy's copy alone
_MIB = 2**20
_OF_FILES = (errno.EMFILE, errno.ENFILE)
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")  # read by OpenBLAS in this order


def limit_mib() -> float:
    """Limit of this process's address space in MiB; infinity without one."""
    with suppress(ImportError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        return math.inf if limit == resource.RLIM_INFINITY else limit / _MIB
    return math.inf


def blas_threads() -> int:
    """Number of OpenBLAS's threads in this process: one per core, or as set by environment variables."""
    for name in _THREADS:
        setting = os.environ.get(name, "")
        if setting.isdecimal() and int(setting):
            return min(int(setting), available_cores())
    return available_cores()


def needed_mib() -> int:
    """Minimum address space of a run, in MiB."""
    return BARE_MIB + THREAD_MIB * (blas_threads() - 1)


def refuse_low_limits() -> None:
    """Raise ConfigError for too little address space or too few open files, before libraries are loaded.

    Under a sufficient limit of the address space, SciPy is imported first.

    Raises:
        ConfigError: a limit is too small for any run, or too little of the address space is left.
    """
    _refuse_few_files()
    limit, needed = limit_mib(), needed_mib()
    if limit == math.inf:
        return
    if limit < needed:
        raise _too_little_error(
            f"at least {needed} MiB for a run with {blas_threads()} threads of OpenBLAS", limit
        )
    blas_mib = _BLAS_MIB * (blas_threads() + 1)
    if not _fits(blas_mib * _MIB):
        raise _too_little_error(f"high enough to leave {blas_mib} MiB for SciPy's OpenBLAS", limit)
    import scipy.linalg  # noqa: F401 - stays loaded


def _refuse_few_files() -> None:
    with suppress(ImportError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit != resource.RLIM_INFINITY and limit < LEAST_FILES:
            raise ConfigError(
                f"open files (ulimit -n) must be at least {LEAST_FILES}, but are {limit}; raise the limit"
            )


def _fits(size: int) -> bool:
    """Whether `size` bytes of address space are available now; they are reserved and released, untouched."""
    try:
        mmap.mmap(-1, size).close()
    except (OSError, MemoryError):
        return False
    return True


def _too_little_error(rule: str, limit: float) -> ConfigError:
    return ConfigError(
        f"the limit of the address space (ulimit -v) must be {rule}, but is {limit:.0f} MiB; raise it, or "
        f"use fewer threads: export {_THREADS[0]}=1"
    )


def remedy(error: BaseException) -> str:
    """Remedy for a failed write to a file: free disk space, unless its error has another cause."""
    return _REMEDIES.get(error.errno or 0, _SPACE) if isinstance(error, OSError) else _SPACE


_SPACE, _GONE, _RIGHTS = "free disk space", "leave the run's files in place", "make the folder writable"
_REMEDIES = {
    **dict.fromkeys(_OF_FILES, "allow more open files (ulimit -n)"),
    **dict.fromkeys((errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ESTALE), _GONE),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _RIGHTS),
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EIO: "check the disk",
}
