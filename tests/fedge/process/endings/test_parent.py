"""Real processes whose parent is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import MARK, leftovers, marked

from fedge.process.endings import parent
from fedge.process.endings.parent import ending_with_parent

ROOT = Path(__file__).parents[4]
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel sends no signal")
PARENT = """
import subprocess, sys
from fedge.process.endings.parent import tie_children_to_parent
if sys.argv[2] == "wants":
    tie_children_to_parent()
with subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE) as child:
    pass
"""
AT_ONCE = (
    "import fedge.process.endings.parent as p, time; print(p.die_with_parent(), flush=True); time.sleep(600)"
)
IN_ORDER = """
import os, sys, time
from pathlib import Path
from fedge.process.endings.parent import follow_parent
def end():
    Path("ended").touch()
    os._exit(0)
print(follow_parent(end), flush=True)
time.sleep(600)
"""

WITH_A_SIGNAL = """
import subprocess, sys
from fedge.process.endings.parent import ending_with_parent
with subprocess.Popen(ending_with_parent([sys.executable, "-c", sys.argv[1]])) as child:
    pass
"""
SAYS_ITS_SIGNAL = """
import os, signal, sys, time
from pathlib import Path
def end(signum, _):
    Path("ended").write_text(signal.Signals(signum).name)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print(os.getppid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("child", [AT_ONCE, IN_ORDER], ids=["at once", "in order"])
@pytest.mark.parametrize("wants", ["wants", "does not"])
def test_a_child_ends_with_a_parent_that_wants_it(tmp_path, child, wants):
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, child, wants], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        env={**os.environ, MARK: str(tmp_path), "PYTHONPATH": str(ROOT), "FEDGE_PARENT": "1"},
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == f"{wants == 'wants'}\n"
        time.sleep(0.7)
        assert len(marked(tmp_path)) == 2
        process.kill()
    if wants == "wants":
        assert leftovers(tmp_path) == []
        assert (tmp_path / "ended").exists() == (child == IN_ORDER)
    else:
        time.sleep(1.5)
        (alone,) = marked(tmp_path)
        alone.kill()


@LINUX
def test_a_command_gets_a_signal_once_its_starter_is_killed(tmp_path):
    """As it would be started by itself: a child of the starter, with time to take its leave."""
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_A_SIGNAL, SAYS_ITS_SIGNAL], cwd=tmp_path, stdout=subprocess.PIPE,
        text=True, env={**os.environ, MARK: str(tmp_path), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with process:
        assert int(process.stdout.readline()) == process.pid
        process.kill()
    assert leftovers(tmp_path) == []
    assert (tmp_path / "ended").read_text() == "SIGTERM"


@LINUX
def test_a_command_that_is_not_there_or_comes_too_late_ends_as_in_a_shell(tmp_path):
    nothing = str(tmp_path / "nothing")
    started = subprocess.run(ending_with_parent([nothing]), capture_output=True, text=True, timeout=60)
    assert (started.returncode, started.stderr) == (127, f"{nothing}: No such file or directory\n")
    words = [sys.executable, "-I", "-S", parent.__file__, "1", "15", sys.executable, "-c", "print('started')"]
    late = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (late.returncode, late.stdout) == (143, "")


def test_no_code_of_ours_runs_between_fork_and_exec():
    """Where a process that has used gRPC aborts now and then."""
    for path in (ROOT / "fedge").rglob("*.py"):
        assert "preexec_fn=" not in path.read_text(encoding="utf-8"), path
