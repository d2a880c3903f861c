"""The native step's library: is it built, which kernels can this processor run, and how is it called?

The library is built when Fedge is installed, if there is a C++ compiler (`fedge.native.build`). It is not
used if the installed sources differ from those it was built from. The environment variable `FEDGE_KERNEL`
selects a kernel other than the best, e.g. to reproduce another machine's bits.
"""

from __future__ import annotations

import ctypes
import functools
import grp
import os
import pwd
import shlex
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedge.native.build import (
    LIBRARY,
    SOURCES,
    BuildError,
    compiler,
    library_digest,
    sources_digest,
    written_digest,
)

KERNEL = "FEDGE_KERNEL"
PYTORCH = "torch"  # value that selects PyTorch for all steps
BF16 = "_bf16"  # suffix of kernels with rounded factors
_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_MESSAGE_BYTES = 256


class UnavailableError(RuntimeError):
    """Error: reason why the native step is unavailable, and the next step. Part of a line."""


@dataclass(frozen=True)
class Library:
    """Functions of src/interface.cpp, and the available kernels, best first.

    Each kernel has a variant NAME_bf16, which rounds the factors of convolutions to bf16.
    """

    calls: Any
    kernels: tuple[str, ...]

    def number(self, kernel: str) -> int:
        """Number of a kernel.

        Raises:
            UnavailableError: this processor or this build lacks the kernel.
        """
        name = kernel.removesuffix(BF16)
        if name not in self.kernels:
            raise UnavailableError(f"it has no kernel {kernel!r} here; use one of {', '.join(self.kernels)}")
        return self.kernels.index(name) + (len(self.kernels) if kernel != name else 0)


def open_library() -> Library:
    """The installed library.

    Raises:
        UnavailableError: it was not built, or was built from other sources.
    """
    return library_at(LIBRARY)


@functools.cache
def library_at(path: Path) -> Library:
    """A library at another path, e.g. one built with sanitizers; see `open_library`."""
    if not path.is_file():
        raise UnavailableError(f"it is not built; {_build_hint()}")
    _refuse_untrusted_library(path)
    try:
        calls = ctypes.CDLL(str(path))
        _declare(calls)
    except (OSError, AttributeError) as error:
        raise UnavailableError(
            f"its library cannot be loaded ({error}); run python -m fedge.native.build"
        ) from error
    if SOURCES.is_dir() and calls.fedge_sources().decode() != sources_digest():
        raise UnavailableError("it was built from other sources; run python -m fedge.native.build")
    return Library(calls, tuple(name for name in _kernels(calls) if not name.endswith(BF16)))


def _build_hint() -> str:
    """The next step towards a library on this machine."""
    try:
        compiler()
    except BuildError:
        return "install a C++ compiler and run python -m fedge.native.build"
    return "run python -m fedge.native.build"


def _refuse_untrusted_library(path: Path) -> None:
    """Raise UnavailableError for a file writable by others, or changed since it was built.

    Loading the file executes it: a truncated one crashes Python, and another account's may do anything.
    """
    try:
        status, content = path.stat(), path.read_bytes()
    except OSError as error:
        raise UnavailableError(
            f"its library cannot be read ({error.strerror or error}); run python -m fedge.native.build"
        ) from error
    if status.st_uid not in (0, os.geteuid(), os.stat(__file__).st_uid):
        raise UnavailableError("its library belongs to another account; run python -m fedge.native.build")
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private_group(status)):
        raise UnavailableError(
            f"other accounts can write to its library; run chmod go-w {shlex.quote(str(path))}"
        )
    if not written_digest(path):
        raise UnavailableError("its library has no digest file; run python -m fedge.native.build")
    if library_digest(content) != written_digest(path):
        raise UnavailableError("its library has changed since it was built; run python -m fedge.native.build")


def _is_private_group(status: os.stat_result) -> bool:
    """Whether a file's group is its owner's private group, as with umask 002 on many systems."""
    try:
        return grp.getgrgid(status.st_gid).gr_name == pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return False


def _declare(calls: ctypes.CDLL) -> None:
    """Declare the functions' arguments and results to ctypes."""
    declared: dict[str, tuple[Any, list[Any]]] = {
        "fedge_sources": (ctypes.c_char_p, []),
        "fedge_kernel": (ctypes.c_char_p, [_INT]),
        "fedge_open": (_POINTER, [_POINTER, _LONG, _INT, _LONG, ctypes.c_char_p, _LONG]),
        "fedge_close": (None, [_POINTER]),
        "fedge_begin": (_INT, [_POINTER] * 5),
        "fedge_train": (_INT, [_POINTER] * 4 + [_LONG] + [_POINTER] * 2),
        "fedge_evaluate": (_INT, [_POINTER] * 3 + [_LONG] + [_POINTER] * 2),
        "fedge_end": (None, [_POINTER] * 3),
        "fedge_multiply_add": (ctypes.c_double, [_INT, _LONG]),
    }
    for name, (result, arguments) in declared.items():
        function = getattr(calls, name)
        function.restype, function.argtypes = result, arguments


def _kernels(calls: ctypes.CDLL) -> Iterator[str]:
    """Names of the kernels, best first, followed by the variants with rounded factors."""
    number = 0
    while (name := calls.fedge_kernel(number)) is not None:
        yield name.decode()
        number += 1


def best_kernel() -> str:
    """Name of the kernel to use: the one in `FEDGE_KERNEL`, or the best.

    Raises:
        UnavailableError: there is none, or `FEDGE_KERNEL` is "torch".
    """
    requested = os.environ.get(KERNEL, "")
    if requested == PYTORCH:
        raise UnavailableError(f"{KERNEL} names {PYTORCH}")
    library = open_library()
    if not requested:
        return library.kernels[0]
    if requested not in library.kernels:
        raise UnavailableError(
            f"{KERNEL} names an unknown kernel: it has no kernel {requested!r} here; use one of "
            f"{', '.join(library.kernels)}"
        )
    return requested


def usable_kernels() -> tuple[str, ...]:
    """Kernels usable in this process, best first: that of `FEDGE_KERNEL`, or all; empty if unavailable."""
    try:
        return _cached_kernels(os.environ.get(KERNEL, ""), LIBRARY.stat().st_mtime_ns)
    except OSError:
        return ()


@functools.cache
def _cached_kernels(requested: str, _: int) -> tuple[str, ...]:
    """Same as `usable_kernels`; cached per library, because thousands of clients call it."""
    try:
        best = best_kernel()
    except UnavailableError:
        return ()
    return (best,) if requested else open_library().kernels


def peak_gflops(library: Library, trials: int = 20) -> float:
    """Peak float32 speed of one core with its widest vectors, GFLOP/s.

    Multiplications and additions in registers, timed by the thread's CPU time; the best of several trials of
    a few milliseconds each, because other processes share the core.
    """
    best = 0.0
    for _ in range(trials):
        start = time.thread_time()
        operations = library.calls.fedge_multiply_add(0, 1_000_000)
        best = max(best, operations / (time.thread_time() - start) / 1e9)
    return best


class Session:
    """One network in the library, with memory for a batch; used by one thread at a time."""

    def __init__(self, words: np.ndarray, batch: int, kernel: str, library: Library | None = None) -> None:
        """Open a session.

        Args:
            words: encoded network (n,) int64, from `fedge.native.program.encoded`.
            batch: largest number of windows at a time.
            kernel: name of a kernel.
            library: library to use; None for the installed one.

        Raises:
            ValueError: `words` are not a valid network.
        """
        self._library = library or open_library()
        self._calls = self._library.calls
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self._session = self._calls.fedge_open(
            _address(words), len(words), self._library.number(kernel), batch, message, _MESSAGE_BYTES
        )
        if not self._session:
            raise ValueError(f"native step: {message.value.decode()}")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.fedge_close(self._session)
        self._session = None

    def begin(
        self, weights: np.ndarray, buffers: np.ndarray, correction: np.ndarray | None, settings: np.ndarray
    ) -> None:
        """Set float32 weights, buffers and SCAFFOLD's correction, and the six float64 settings."""
        self._raise_on_error(
            self._calls.fedge_begin(
                self._session, _address(weights), _address(buffers),
                None if correction is None else _address(correction), _address(settings),
            )
        )  # fmt: skip

    def train(
        self, x: np.ndarray, y: np.ndarray, order: np.ndarray, masks: np.ndarray | None, batches: int
    ) -> np.ndarray:
        """Take one step per batch of `order` (int64); returns each batch's mean loss, (batches,) float64."""
        losses = np.empty(batches, np.float64)
        self._raise_on_error(
            self._calls.fedge_train(
                self._session, _address(x), _address(y), _address(order), len(order),
                None if masks is None else _address(masks), _address(losses),
            )
        )  # fmt: skip
        return losses

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Loss (float64) and most likely class (int64) of each window."""
        losses, predictions = np.empty(len(y), np.float64), np.empty(len(y), np.int64)
        self._raise_on_error(
            self._calls.fedge_evaluate(
                self._session, _address(x), _address(y), len(y), _address(losses), _address(predictions)
            )
        )
        return losses, predictions

    def end(self, weights: np.ndarray, buffers: np.ndarray) -> None:
        """Write weights and buffers into float32 arrays."""
        self._calls.fedge_end(self._session, _address(weights), _address(buffers))

    def _raise_on_error(self, code: int) -> None:
        if code:
            raise MemoryError("native step: out of memory")


def _address(array: np.ndarray) -> int:
    """Address of a contiguous array's first byte."""
    assert array.flags.c_contiguous
    return int(array.ctypes.data)
