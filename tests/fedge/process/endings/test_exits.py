"""`fedge.process.endings.exits`: signals and ends, each in a process of its own."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from fedge.process.endings import exits

HANGING = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()\n"


def run(code, timeout=120):
    """Run Python code; returns exit code and output."""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, check=False
    )
    return process.returncode, process.stdout + process.stderr


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_signals_become_exceptions(name, code):
    found, output = run(
        "import os, signal, sys, time\nfrom fedge.process.endings import exits\n"
        f"signal.signal(signal.{name}, signal.default_int_handler)\n"  # the tests may run under nohup
        "try:\n"
        "    with exits.signals_as_exceptions():\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "        time.sleep(10)\n"
        "except KeyboardInterrupt as error:\n"
        "    print(error.reason)\n"
        "    sys.exit(error.exit_code)\n"
    )
    assert found == code
    assert output.strip() == ("interrupted" if name == "SIGINT" else f"interrupted ({name})")


def test_a_signal_within_a_condition_s_wait_is_an_interruption():
    """There, while it takes its lock again: Python's own clean-up ends as RuntimeError."""
    found, output = run(
        "import os, signal, sys, threading\nfrom fedge.process.endings import exits\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "changed = threading.Condition()\n"
        "changed._acquire_restore = lambda state: os.kill(os.getpid(), signal.SIGINT)\n"
        "try:\n"
        "    with exits.signals_as_exceptions():\n"
        "        try:\n"
        "            with changed:\n"
        "                changed.wait(0.01)\n"
        "        except RuntimeError as error:\n"
        "            print(error)\n"
        "            raise\n"
        "except KeyboardInterrupt as error:\n"
        "    sys.exit(error.exit_code)\n"
    )
    assert (found, output) == (130, "cannot release un-acquired lock\n")


def test_a_signal_in_a_finaliser_prints_no_traceback():
    """Python drops it there, and would print it; other errors of finalisers are printed as ever."""
    found, output = run(
        "import os, signal\nfrom fedge.process.endings import exits\n"
        "class Ends:\n"
        "    def __init__(self, how): self.how = how\n"
        "    def __del__(self): self.how()\n"
        "def fail(): raise ValueError('its own')\n"
        "with exits.signals_as_exceptions():\n"
        "    Ends(lambda: os.kill(os.getpid(), signal.SIGTERM))\n"
        "    Ends(fail)\n"
        "    print('on')\n"
    )
    assert found == 0
    assert "Interrupted" not in output
    assert "ValueError: its own" in output


def test_errors_of_their_own_are_no_interruptions():
    with pytest.raises(RuntimeError, match="its own"), exits.interruptions():
        raise RuntimeError("its own")


def test_what_is_ignored_from_outside_stays_ignored():
    """As under nohup."""
    code = (
        "import os, signal\nfrom fedge.process.endings import exits\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with exits.signals_as_exceptions():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('on')"
    )
    assert run(code) == (0, "on\n")


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with exits.signals_as_exceptions():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_other_threads_leave_signals_alone():
    seen = []

    def look():
        with exits.signals_as_exceptions():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_hanging_thread_does_not_hold_up_the_end():
    """Output that was written is not lost, and the exit code is the first one that was set."""
    code = HANGING + (
        "import sys\nfrom fedge.process.endings import exits\nprint('last words', end='')\n"
        "exits.leave_within(0.2, 5)\nexits.leave_within(0.1, 6)\n"
    )
    assert run(code) == (5, "last words")


@pytest.mark.parametrize(("patient", "written"), [(True, "report"), (False, "no report\n")])
def test_a_report_is_waited_for_where_nobody_asked_to_leave(patient, written):
    code = HANGING + (
        "import sys\nfrom fedge.process.endings import exits\n"
        f"exits.leave_within(0.1, 3, patient={patient})\n"
        "with exits.finishing('no report'):\n    time.sleep(0.6)\n    print('report', end='')\n"
    )
    assert run(code) == (3, written)


def test_a_hanging_thread_does_not_hold_up_an_interrupted_process():
    code = HANGING + (
        "import os, signal\nfrom fedge.process.endings import exits\n"
        "with exits.signals_as_exceptions(leave_s=0.2):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(10)\n"
    )
    found, output = run(code)
    assert found == 143
    assert "Interrupted" in output


@pytest.mark.parametrize(("waits", "code"), [(0.1, 0), (30.0, 1)])
def test_a_call_that_holds_pythons_lock_ends_the_process(waits, code):
    """A library's own wait, during which no thread of Python's runs; one over in time does nothing."""
    found, output = run(
        "import ctypes, time\nfrom fedge.process.endings import exits\n"
        "with exits.leaving_if_stuck(2.0):\n"
        f"    ctypes.PyDLL(None).usleep({round(waits * 1e6)})\n"
        "time.sleep(2.5)\nprint('done')\n"
    )
    assert found == code
    assert ("done" in output, "Timeout" in output) == (code == 0, code == 1)


@pytest.mark.parametrize("ended", [False, True])
def test_output_that_nobody_reads_does_not_hold_up_an_interrupted_process(ended):
    """Also after its end: a pager may take its time to read the last lines, but a signal is a request."""
    code = (
        "import os\nfrom fedge.process.endings import exits\n"
        f"if {ended}:\n    exits.leave_within(0.5, 0, patient=True)\n"
        "with exits.signals_as_exceptions(leave_s=0.2):\n"
        "    os.write(2, b'ready')\n"
        "    try:\n        print('x' * 10**6)\n    finally:\n        print('y' * 10**6)\n"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered
    ) as process:
        assert process.stderr.read(5) == b"ready"
        time.sleep(1.0)  # the pipe is full after milliseconds
        process.terminate()
        try:
            assert process.wait(30) in ({0, 143} if ended else {143})
        finally:
            process.kill()


def test_a_process_that_ends_by_itself_is_not_waited_for():
    began = time.monotonic()
    assert run("from fedge.process.endings import exits; exits.leave_within(30, 5)")[0] == 0
    assert time.monotonic() - began < 30


def test_interruptions():
    assert exits.find_interruption(KeyboardInterrupt()).exit_code == 130
    assert exits.find_interruption(exits.Interrupted(signal.SIGTERM)).exit_code == 143
    assert exits.find_interruption(ValueError()) is None
    seen = []
    exits.end_on_signal(2)  # nobody is there
    with exits.ending_on_signal(seen.append):
        exits.end_on_signal(2)
    exits.end_on_signal(15)
    assert seen == [2]


HANDLED = (
    "import os, signal, sys, threading, time\nfrom fedge.process.endings import exits, watchdog\n"
    "from pathlib import Path\n"
    "def send(name):\n    os.kill(os.getpid(), getattr(signal, name)); time.sleep(0.01)\n"
    "for name in ('SIGINT', 'SIGTERM', 'SIGHUP'):\n"  # the tests may run under nohup
    "    signal.signal(getattr(signal, name), signal.default_int_handler)\n"
)


def handled(body, to_the_end=False, after=""):
    """Exit code and output of a process that carries out `body` where signals are exceptions."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return run(
        f"{HANDLED}try:\n    with exits.signals_as_exceptions(to_the_end={to_the_end}):\n{lines}"
        f"except KeyboardInterrupt as error:\n    code = error.exit_code\n    {after or 'pass'}\n"
        "    sys.exit(code)\n"
    )


def test_a_moment_that_must_not_be_left_half_done_is_finished_first():
    body = (
        "with exits.uninterrupted():\n    with exits.uninterrupted():\n        send('SIGTERM')\n"
        "        send('SIGINT')\n        print('inner')\n    print('outer')\nprint('never')"
    )
    assert handled(body) == (143, "inner\nouter\n")


def test_a_notebook_s_interruption_waits_likewise():
    """There nothing makes signals exceptions but Python itself."""
    body = (
        "try:\n    with exits.uninterrupted():\n        send('SIGINT')\n        print('done')\n"
        "except KeyboardInterrupt:\n    print('then')\n"
    )
    assert run(HANDLED + body) == (0, "done\nthen\n")


def test_a_process_that_hangs_where_signals_wait_is_forced_to_end():
    body = (
        "with exits.signals_as_exceptions(0.2), exits.uninterrupted():\n    send('SIGTERM')\n"
        "    time.sleep(30)\n"
    )
    assert run(HANDLED + body) == (143, "")


def test_other_threads_leave_moments_alone():
    with exits.signals_as_exceptions():
        before, seen = signal.getsignal(signal.SIGTERM), []

        def look():
            with exits.uninterrupted():
                seen.append(signal.getsignal(signal.SIGTERM))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [before]


@pytest.mark.parametrize(("pause", "twice"), [(0.0, False), (0.7, True)])
def test_a_signal_sent_twice_at_once_is_one_request(pause, twice):
    """And the first counts: the exit code in the manifest is the process's."""
    body = (
        "try:\n    send('SIGHUP')\nexcept KeyboardInterrupt:\n"
        f"    time.sleep({pause})\n    send('SIGTERM')\n    print('cleaned up')\n    raise"
    )
    assert handled(body) == (129, "" if twice else "cleaned up\n")


def test_a_process_that_ends_by_a_signal_takes_no_second():
    """The interpreter's own clean-up would end as a traceback, or the process as killed."""
    after = "time.sleep(0.6); send('SIGINT'); send('SIGTERM'); print('ended')"
    assert handled("send('SIGTERM')", to_the_end=True, after=after) == (143, "ended\n")


@pytest.mark.parametrize(
    "loses",
    [
        "try:\n    send('SIGTERM')\nexcept:\n    pass",
        "sys.unraisablehook = lambda _: None\nclass Dropped:\n    def __del__(self):\n"
        "        send('SIGTERM')\nDropped()",
    ],
    ids=["bare except", "finaliser"],
)
@pytest.mark.parametrize("step", ["note_progress", "refuse_stalled"])
def test_a_signal_that_other_code_drops_ends_the_run_at_its_next_step(loses, step):
    """It went on, and was killed in the middle of a later one, with a manifest that says running."""
    indented = "".join(f"    {line}\n" for line in loses.splitlines())
    body = (
        f"with watchdog.watching(60.0, Path(os.devnull), print):\n{indented}    print('goes on')\n"
        f"    watchdog.{step}()\n    print('never')"
    )
    assert handled(body) == (143, "goes on\n")


def test_after_the_run_trackers_and_report_may_take_steps():
    body = (
        "try:\n    with watchdog.watching(60.0, Path(os.devnull), print):\n        send('SIGTERM')\n"
        "finally:\n    watchdog.note_progress()\n    print('finished')"
    )
    assert handled(body) == (143, "finished\n")
