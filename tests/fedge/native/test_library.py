"""The library of the native step: found, refused, named; what is no program is not carried out."""

import os
import sys
import time

import numpy as np
import pytest
import torch
from any_networks import kernels, needs_native

from fedge.native import library
from fedge.native.build import LIBRARY, digest_file, library_digest
from fedge.native.library import (
    KERNEL,
    Session,
    UnavailableError,
    best_kernel,
    library_at,
    open_library,
    peak_gflops,
    usable_kernels,
)  # fmt: skip


@pytest.mark.parametrize(
    ("compiler", "step"),
    [
        (sys.executable, "run python -m fedge.native.build"),
        ("/none", "install a C++ compiler and run python -m fedge.native.build"),
    ],
)
def test_what_is_not_built_says_what_to_do_here(tmp_path, monkeypatch, compiler, step):
    """Nobody with a compiler is told to install one."""
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(UnavailableError) as refused:
        library_at(tmp_path / "none.so")
    assert str(refused.value) == f"it is not built; {step}"


def put(path, content):
    """Write a library with a digest that is its own."""
    path.write_bytes(content)
    path.chmod(0o755)
    digest_file(path).write_text(f"{library_digest(content)}  {path.name}\n")


def test_what_is_no_library_is_refused(tmp_path):
    put(tmp_path / "text.so", b"no library")
    with pytest.raises(UnavailableError, match="cannot be loaded"):
        library_at(tmp_path / "text.so")


@needs_native
def test_a_library_of_other_sources_is_refused(tmp_path):
    """The digest in it is that of its sources."""
    library = LIBRARY.read_bytes()
    digest = open_library().calls.fedge_sources()
    put(tmp_path / "old.so", library.replace(digest, b"0" * len(digest)))
    with pytest.raises(UnavailableError, match="other sources"):
        library_at(tmp_path / "old.so")


@needs_native
def test_a_library_that_is_cut_or_changed_is_not_loaded(tmp_path):
    """Loading a cut one would end this process by SIGBUS or SIGSEGV: 50 cuts, 50 changed bytes."""
    whole, path = LIBRARY.read_bytes(), tmp_path / "cut.so"
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(whole), 50):
        changed = bytearray(whole)
        changed[at] ^= 1
        for content in (whole[:at], bytes(changed)):
            put(path, whole)
            path.write_bytes(content)
            with pytest.raises(UnavailableError, match="has changed since it was built"):
                library_at(path)
    digest_file(path).unlink()
    with pytest.raises(UnavailableError, match="no digest"):
        library_at(path)


@needs_native
def test_a_library_that_others_can_write_to_is_not_loaded(tmp_path):
    path = tmp_path / "open.so"
    put(path, LIBRARY.read_bytes())
    path.chmod(0o757)
    with pytest.raises(UnavailableError, match="other accounts can write"):
        library_at(path)
    if os.geteuid() == 0:
        path.chmod(0o755)
        os.chown(path, 12345, 12345)
        with pytest.raises(UnavailableError, match="belongs to another account"):
            library_at(path)
        os.chown(path, 0, 12345)
        path.chmod(0o775)
        with pytest.raises(UnavailableError, match="other accounts can write"):
            library_at(path)


@needs_native
def test_the_best_kernel_is_taken_unless_one_is_named(monkeypatch):
    monkeypatch.delenv(KERNEL, raising=False)
    assert best_kernel() == kernels()[0]
    assert kernels()[-1] == "plain"
    monkeypatch.setenv(KERNEL, "plain")
    assert best_kernel() == "plain"
    monkeypatch.setenv(KERNEL, "torch")
    with pytest.raises(UnavailableError, match="FEDGE_KERNEL names torch"):
        best_kernel()
    monkeypatch.setenv(KERNEL, "sse9")
    with pytest.raises(UnavailableError, match=r"FEDGE_KERNEL names .* 'sse9' here; use one of"):
        best_kernel()


@pytest.mark.parametrize("named", ["", *kernels(), "torch", "none-such"])
def test_a_process_may_use_the_kernel_that_is_named_or_all(monkeypatch, named):
    monkeypatch.setenv(KERNEL, named)
    wanted = kernels() if not named else (named,) if named in kernels() else ()
    assert usable_kernels() == wanted


def test_without_a_library_no_kernel_can_be_used(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "none.so")
    assert usable_kernels() == ()


@needs_native
@pytest.mark.parametrize(
    ("words", "why"),
    [([], "too early"), ([0] * 10, "input or logits"), ([1, 0, 0, 5, 5, 0, 0, 1, 3, 1, 1], "too early")],
)
def test_what_is_no_program_is_refused(words, why):
    with pytest.raises(ValueError, match=why):
        Session(np.array(words, np.int64), 4, "plain")


@needs_native
def test_a_layer_that_reads_beyond_its_parameters_is_refused():
    linear = [1, 0, 0, 1, -1, 2, 1, 0, 0, 1, 0, 0, -1, 0, 0, 0, 0, 0, -1, -1]
    linear[0], linear[4:6] = 1, [9, -1]  # a weight that there is none of
    words = [1, 0, 1, 6, 6, 0, 0, 2, 3, 1, 2, 1, 1, 2, 0, 2, 3, 1, 1, *linear]
    with pytest.raises(ValueError, match="parameters are unknown"):
        Session(np.array(words, np.int64), 4, "plain")


@needs_native
def test_the_peak_of_a_core_is_above_what_a_matrix_product_reaches():
    """And not beyond what any core has: two multipliers of 16 numbers at 6 GHz."""
    square = np.ones((512, 512), np.float32)
    before = time.thread_time()
    with torch.no_grad():
        torch.from_numpy(square) @ torch.from_numpy(square)
    product = 2 * 512**3 / (time.thread_time() - before) / 1e9
    assert 0.5 * product < peak_gflops(open_library(), trials=5) < 400
