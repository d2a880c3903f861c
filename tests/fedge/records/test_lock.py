import os
import signal
import subprocess
import sys

import pytest

from fedge.config.registers.option import ConfigError
from fedge.records.lock import RunLock, is_locked


def test_one_holder_at_a_time(tmp_path):
    assert not is_locked(tmp_path)
    lock = RunLock(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(
        ConfigError, match=r"^a run must have ended before .* is still in progress; wait for it, or stop"
    ):
        RunLock(tmp_path)
    lock.close()
    assert not is_locked(tmp_path)
    RunLock(tmp_path).close()


def test_the_lock_goes_with_a_process_that_is_killed(tmp_path):
    code = f"import pathlib, fedge.records.lock as r; lock = r.RunLock(pathlib.Path({str(tmp_path)!r})); "
    process = subprocess.Popen(
        [sys.executable, "-c", code + "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    assert is_locked(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not is_locked(tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    assert not is_locked(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"must be writable, but .*nowhere: No such file"):
        RunLock(tmp_path / "nowhere")
