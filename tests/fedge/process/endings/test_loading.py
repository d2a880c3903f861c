"""Ctrl-C while the command line is being loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
INTERRUPTED_AT = """
import importlib.abc, os, signal, sys
class Interrupts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
"""
LOADED = """
import signal
before = signal.getsignal(signal.SIGINT)
import fedge.cli
assert signal.getsignal(signal.SIGINT) is before
"""


@pytest.mark.parametrize("module", ["fedge.commands.compare", "argparse", "fedge.use.commands"])
def test_ctrl_c_during_the_imports_is_the_end_without_a_traceback(module):
    """At the first import after this module's, inside a library, and at the last."""
    command = [sys.executable, "-c", f"{INTERRUPTED_AT}\nimport fedge.cli\nprint('loaded')", module]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize("given", ["", "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"])
def test_the_handler_is_the_same_after_the_imports(given):
    """Also one that came from outside, such as that of nohup."""
    subprocess.run(
        [sys.executable, "-c", f"import signal\n{given}{LOADED}"], cwd=ROOT, timeout=60, check=True
    )
