"""The building of the native step: with a compiler, without one, and when nothing is to be done."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedge.native.build import LIBRARY, BuildError, _call, build, compiler, is_built, machine, sources_digest

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
    assert "training goes on in PyTorch" in done.stderr


@needs_compiler
def test_what_the_compiler_says_is_told(tmp_path):
    wrong = tmp_path / "wrong.cpp"
    wrong.write_text("int f( {}")
    with pytest.raises(BuildError, match=r"failed: .*error"):
        _call([*compiler(), "-c", str(wrong), "-o", str(tmp_path / "wrong.o")])


@pytest.mark.slow
@needs_compiler
def test_a_library_knows_its_sources(tmp_path):
    library = build(tmp_path / "step.so", flags=("-O0",), family="other")  # one kernel only
    assert is_built(library)
    assert not is_built(tmp_path / "none.so")
    assert sources_digest().encode() in library.read_bytes()
    assert os.listdir(tmp_path) == ["step.so"]


def test_the_processor_has_a_family():
    assert machine() == machine().lower()
    assert LIBRARY.parent == ROOT / "fedge" / "native"
