"""Checks before a run that take long say where the user's code stands; others say nothing."""

import threading
import time

import pytest

from fedge.config.registers.option import ConfigError
from fedge.launch import patience
from fedge.launch.preflight import check
from fedge.process.background_jobs import BackgroundJob

CODE = "def part(until):\n    until(30)\n"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(patience, "_AFTER_S", 0.1)


def test_own_code_that_stands_still_is_named_once(capsys):
    known, over = {}, threading.Event()
    exec(compile(CODE, "/home/me/my_part.py", "exec"), known)
    with patience.reporting_slow_code(), BackgroundJob() as behind:
        behind.begin(lambda: known["part"](over.wait))
        time.sleep(0.6)
        over.set()
    assert capsys.readouterr().err.splitlines() == [
        "checks before the run have taken 0.1 s: your own code is at /home/me/my_part.py, line 2; "
        "Ctrl-C ends it"
    ]


def test_without_own_code_nothing_is_said(capsys):
    with patience.reporting_slow_code():
        time.sleep(0.4)
    assert capsys.readouterr().err == ""


def test_the_check_before_a_run_has_it(monkeypatch, capsys):
    """From its first step on."""

    def refuse():
        assert any(thread.name == "patience" for thread in threading.enumerate())
        raise ConfigError("seen")

    monkeypatch.setattr("fedge.launch.preflight.refuse_run_in_import", refuse)
    with pytest.raises(ConfigError, match="seen"):
        check({}, None)
