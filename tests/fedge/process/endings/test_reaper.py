"""The reaper of real processes that are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from processes import MARK, leftovers

ROOT = Path(__file__).parents[4]
RUN = """
import os, signal, subprocess, sys, time
from pathlib import Path
from fedge.process.endings import reaper
from fedge.process.endings.reaper import has_reaper, remove_at_end, start_reaper

reaper._BY_THEMSELVES_S = 0.5
remove_at_end(Path("nobody"))  # without a reaper nothing is done
assert not has_reaper() and start_reaper() and not start_reaper() and has_reaper()
for path in sys.argv[2:]:
    remove_at_end(Path(path))
middle = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
subprocess.run([sys.executable, "-c", middle])  # whose parent is gone at once: nobody's child
print("ready", flush=True)
if sys.argv[1] == "wait":
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["wait", "end"], ids=["killed", "ended"])
def test_what_a_process_has_started_and_left_goes_with_it(tmp_path, how):
    folder, file = tmp_path / "folder", tmp_path / "file"
    (folder / "inner").mkdir(parents=True)
    file.write_text("x")
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, how, folder, file, tmp_path / "never there"], cwd=ROOT,
        env={**os.environ, MARK: str(tmp_path)}, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "ready\n"
        if how == "wait":
            time.sleep(0.2)
            assert process.poll() is None
            assert folder.exists()
            process.kill()
        process.wait(timeout=60)
    assert leftovers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_signal_to_the_whole_session_does_not_end_the_reaper_first(tmp_path):
    """Ctrl-C and a closed terminal reach the run's group; the reaper has a session of its own."""
    folder = tmp_path / "folder"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "wait", folder], cwd=ROOT, env={**os.environ, MARK: str(tmp_path)},
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "ready\n"
        (reaper,) = [
            p for p in psutil.Process(process.pid).children() if "reaper.py" in " ".join(p.cmdline())
        ]
        time.sleep(0.5)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            reaper.send_signal(signum)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
    assert leftovers(tmp_path) == []
    assert not folder.exists()
