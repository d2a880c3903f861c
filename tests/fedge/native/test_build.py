"""The building of the native step: with a compiler, without one, and when nothing is to be done."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedge.native.build import (
    AMX,
    LIBRARY,
    SOURCES,
    BuildError,
    _compile,
    _run_compiler,
    build,
    compiler,
    is_built,
    machine,
    sources_digest,
)  # fmt: skip

ROOT = Path(__file__).parents[3]
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="there is no C++ compiler"
)


def test_without_a_compiler_one_line_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match=r"^there is no C\+\+ compiler no-such-compiler \(CXX\)$"):
        compiler()


def test_the_command_goes_on_without_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fedge.native.build"],
        cwd=ROOT, env={**os.environ, "CXX": str(tmp_path / "none")}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("fedge: the native step cannot be built: there is no C++ compiler")
    assert "training uses PyTorch" in done.stderr


@needs_compiler
def test_what_the_compiler_says_is_told(tmp_path):
    wrong = tmp_path / "wrong.cpp"
    wrong.write_text("int f( {}")
    with pytest.raises(BuildError, match=r"failed: .*error"):
        _run_compiler([*compiler(), "-c", str(wrong), "-o", str(tmp_path / "wrong.o")])


@needs_compiler
@pytest.mark.skipif(machine() != "x86_64", reason="AMX is of x86_64")
def test_a_compiler_that_knows_no_amx_leaves_it_out(tmp_path):
    """As one from before 2021: what it refuses is left out; the object has no such kernel."""
    old, compiled = tmp_path / "old", tmp_path / "amx.o"
    known = " ".join(map(shlex.quote, compiler()))
    old.write_text(
        f'#!/bin/sh\nfor word; do case "$word" in -mamx*) echo "error: $word" >&2; exit 1;; esac; done\n'
        f'exec {known} "$@"\n'
    )
    old.chmod(0o755)
    _compile([str(old)], compiled, SOURCES / "amx.cpp", AMX)
    assert compiled.stat().st_size > 0
    with pytest.raises(BuildError, match="-mamx-tile"):
        _run_compiler([str(old), *AMX, "-c", str(SOURCES / "amx.cpp"), "-o", str(compiled)])


@pytest.mark.slow
@needs_compiler
def test_a_library_knows_its_sources(tmp_path):
    library = build(tmp_path / "step.so", flags=("-O0",), family="other")  # one kernel only
    assert is_built(library)
    assert not is_built(tmp_path / "none.so")
    assert sources_digest().encode() in library.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["step.so", "step.so.sha256"]
    library.write_bytes(library.read_bytes()[:-1])
    assert not is_built(library)


def test_the_processor_has_a_family():
    assert machine() == machine().lower()
    assert LIBRARY.parent == ROOT / "fedge" / "native"
