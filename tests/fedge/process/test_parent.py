"""Real processes whose parent is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import MARK, leftovers, marked

ROOT = Path(__file__).parents[3]
PARENT = """
import subprocess, sys
from fedge.process.parent import be_followed
if sys.argv[2] == "wants":
    be_followed()
with subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE) as child:
    pass
"""
AT_ONCE = "import fedge.process.parent as p, time; print(p.follow_at_once(), flush=True); time.sleep(600)"
IN_ORDER = """
import os, sys, time
from pathlib import Path
from fedge.process.parent import follow_parent
def end():
    Path("ended").touch()
    os._exit(0)
print(follow_parent(end), flush=True)
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
