import os
import threading
import time

import pytest

from fedge.config.sections.guard import GuardConfig
from fedge.process.background_jobs import BackgroundJob
from fedge.process.endings.watchdog import StallError, note_progress, refuse_stalled, stall_limit_s, watching


def wait_for(condition, seconds=20):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def stalled():
    try:
        refuse_stalled()
    except StallError:
        return True
    return False


@pytest.mark.parametrize(
    ("stall", "client", "limit"),
    [(0.0, 3600.0, 7200.0), (0.0, 10.0, 600.0), (5.0, 3600.0, 5.0), (9000.0, 10.0, 9000.0)],
)
def test_the_limit(stall, client, limit):
    assert stall_limit_s(GuardConfig(stall_timeout=stall, client_timeout=client)) == limit


def test_a_run_that_waits_is_told(tmp_path):
    """It raises where the run waits for replies; the log has the stacks, and nobody gives up on the run."""
    log, given_up = tmp_path / "run.log", []
    with watching(0.2, log, given_up.append):
        refuse_stalled()
        assert wait_for(stalled)
        with pytest.raises(
            StallError, match=r"^stalled: no reply and no finished step for 0\.2 s \(guard\.st"
        ):
            refuse_stalled()
    refuse_stalled()  # what was is over
    assert "test_a_run_that_waits_is_told" in log.read_text()
    assert given_up == []


def test_a_run_that_hangs_in_own_code_is_told_its_line(tmp_path):
    """The log's stacks are of every thread, most of them of packages."""
    known, over, told = {}, threading.Event(), []
    exec(compile("def part(until):\n    until(30)\n", "/home/me/my_part.py", "exec"), known)
    with watching(0.2, tmp_path / "run.log", told.append), BackgroundJob() as behind:
        behind.begin(lambda: known["part"](over.wait))
        assert wait_for(stalled)
        over.set()
        with pytest.raises(
            StallError, match=r"; your own code is at /home/me/my_part\.py, line 2; run.log has"
        ):
            refuse_stalled()


def test_progress_keeps_it_away(tmp_path):
    """The log's time stamp shows it to other processes."""
    log = tmp_path / "run.log"
    log.touch()
    os.utime(log, (0, 0))
    with watching(2.0, log, lambda reason: None):
        end = time.monotonic() + 3
        while time.monotonic() < end:
            note_progress()
            refuse_stalled()
            time.sleep(0.01)
    assert log.read_text() == ""
    assert log.stat().st_mtime > 0


def test_the_first_progress_may_take_longer(tmp_path):
    """Until clients have been found, guard.start-timeout counts."""
    with watching(0.1, tmp_path / "run.log", lambda reason: None, start_s=100.0):
        time.sleep(0.5)
        refuse_stalled()
        note_progress()
        assert wait_for(stalled)


def test_a_run_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("fedge.process.endings.watchdog.GRACE_S", 0.1)
    given_up = []
    with watching(0.1, tmp_path / "run.log", given_up.append):
        assert wait_for(lambda: given_up)
    assert given_up[0].startswith("stalled: ")


def test_a_log_that_cannot_be_written_does_not_matter(tmp_path):
    with watching(0.1, tmp_path / "none" / "run.log", lambda reason: None):
        assert wait_for(stalled)
