import json
import os
import subprocess
import sys

import pytest

from fedge.process.identity import PID_BITS, has_ended, process_number, this_process


def test_a_process_number_is_a_process_id_with_its_machine_above_it():
    assert process_number() & (1 << PID_BITS) - 1 == os.getpid()
    assert int(float(process_number())) == process_number()  # it travels as a float


def test_this_process_is_there():
    process = this_process()
    assert process["pid"] == os.getpid()
    assert process["start"] > 0
    assert has_ended(process) is False


def test_a_process_that_ended_is_known_even_while_nobody_has_asked_for_its_exit_code():
    code = (
        "import json; from fedge.process.identity import this_process\n"
        "print(json.dumps(this_process()), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        process = json.loads(child.stdout.readline())
        assert has_ended(process) is False
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
        assert has_ended(process) is True
    assert has_ended(process) is True


@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ({"start": 1}, True),  # the id has gone to another process
        ({"boot": "another"}, True),  # the machine was started anew
        ({"host": "another"}, None),  # not for us to say
        ({"host": "another", "boot": "another"}, None),
        ({"pid": "1"}, None),
        ({"pid": -1}, None),
        ({"pid": 2**22 + 1}, True),  # no such process
    ],
)
def test_other_processes(changes, ended):
    assert has_ended({**this_process(), **changes}) is ended


def test_nothing_known():
    assert has_ended({}) is None
