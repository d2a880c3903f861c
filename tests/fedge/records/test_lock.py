import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO, errno.EINVAL])
def test_a_disk_without_locks_is_not_a_run_in_progress(tmp_path, monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    rule = rf"must be on a disk with file locks, but .*: {os.strerror(number)};"
    with pytest.raises(ConfigError, match=rule):
        RunLock(tmp_path)
    assert not is_locked(tmp_path)


def test_a_lock_that_cannot_be_opened_is_not_a_run_in_progress(tmp_path):
    (tmp_path / ".lock").mkdir()
    assert not is_locked(tmp_path)


def test_a_look_at_a_lock_needs_no_right_to_write(tmp_path, monkeypatch):
    lock = RunLock(tmp_path)
    (tmp_path / ".lock").chmod(0o400)
    opened = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode: opened.append(mode) or real(path, mode))
    assert is_locked(tmp_path)
    lock.close()
    assert not is_locked(tmp_path)
    assert opened == ["rb", "rb"]
