"""Processes that Fedge starts in a project's folder, whose files have names of the standard library."""

import ast
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedge.process.python import leave_safe_path, python_words, safe_path

ROOT = Path(__file__).parents[3]
FEDGE = str(Path(sys.executable).with_name("fedge"))
needs_flag = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no -P")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a module of every name of the standard library, each of which raises."""
    for name in sys.stdlib_module_names:
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('the project\\'s own {name}.py')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def safe_path_of(connection):
    leave_safe_path()
    connection.send(os.environ.get("PYTHONSAFEPATH"))


@needs_flag
def test_modules_of_the_working_directory_are_not_imported(folder):
    code = "import random, types, queue, statistics, logging.handlers"
    assert subprocess.run(python_words("-c", code), check=False).returncode == 0
    assert subprocess.run(python_words("-m", "json.tool", "--help"), check=False).returncode == 0


@needs_flag
@pytest.mark.parametrize("before", [None, "", "1"])
def test_multiprocessing_does_not_either_and_a_user_s_setting_stays(folder, monkeypatch, before):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONSAFEPATH", before)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=safe_path_of, args=(theirs,))
    with safe_path():
        process.start()
    assert ours.recv() == (before or None)
    process.join()
    assert process.exitcode == 0
    assert os.environ.get("PYTHONSAFEPATH") == before


@pytest.mark.parametrize("package", ["fedge", "hhar"])
def test_every_process_of_python_is_started_so(package):
    """Or with -I, in isolation."""
    found = []
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.List | ast.Tuple) and node.elts:
                first, *others = map(ast.unparse, node.elts)
                if first == "sys.executable" and others[:1] != ["'-I'"]:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == ([] if package == "hhar" else found[:1])
    assert all(place.startswith("fedge/process/python.py:") for place in found)


@needs_flag
@pytest.mark.extended
@pytest.mark.whole_runs
@pytest.mark.parametrize("words", [["sweep", "sweep.toml"], ["doctor"], ["run", "-c", "run-name=it"]])
def test_commands_in_such_a_folder(folder, words):
    options = "num-server-rounds=1 train.local-epochs=1 data.synthetic-users=3 report=false"
    sweep = "\n".join(["[sweep]", "seeds = [1]", "supernodes = 3", "[base]", *options.split()])
    (folder / "sweep.toml").write_text(sweep)
    words = words + (["-c", options] if words[0] != "sweep" else [])
    done = subprocess.run([FEDGE, *words], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "own" not in done.stderr
