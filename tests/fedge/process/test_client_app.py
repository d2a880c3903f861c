"""A node's report on its processes: measured by processes that are called as Flower's are."""

import json
import os
import subprocess
import sys

import pytest

from fedge.process.client_app import (
    as_numbers,
    is_client_app,
    is_program,
    lasting_process,
    measure_node,
    processes_from_numbers,
)
from fedge.process.identity import machine_number, process_number
from fedge.process.resources.memory import ProcessMemory

THERE = 5 << 22
HELD = [ProcessMemory("worker", 7, 1.5, 3, threads=2), ProcessMemory("node", 6, 2.5, None, threads=1)]
ROW = as_numbers(HELD[:1])

_SAYS = (
    "import json, os, sys; from fedge.process.client_app import lasting_process, measure_node\n"
    "print(json.dumps([lasting_process() % 2**22 == os.getppid(),"
    " [(p.role, p.pid in (os.getpid(), os.getppid()), p.rss_mib > 1) for p in measure_node()]]))"
)
_STARTS = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


@pytest.fixture
def programs(tmp_path):
    """A function that gives a program of a name, as Flower's are: a script that Python carries out."""

    def program(name, code):
        path = tmp_path / name
        path.write_text(code)
        return [sys.executable, str(path)]

    return program


def said(*words):
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def test_this_process_is_no_client_app_and_says_nothing():
    assert not is_client_app()
    assert measure_node() == []
    assert lasting_process() == process_number()


def test_a_client_app_measures_itself_and_flowers_programs_above_it(programs):
    """SuperNode, SuperExec, ClientApp; who has started the SuperNode is none of it."""
    starts = [*programs("flower-supernode", _STARTS), *programs("flower-superexec", _STARTS)]
    lasts, held = said(sys.executable, "-c", _STARTS, *starts, *programs("flwr-clientapp", _SAYS))
    assert lasts
    assert sorted(held) == [["node", False, True], ["node", True, True], ["worker", True, True]]


def test_a_client_app_of_fedge_node_finds_the_super_node_beside_it(programs):
    beside = programs("flower-supernode", "input()")
    code = (
        "import subprocess, sys\n"
        f"one = subprocess.Popen({beside!r}, stdin=-1); more = subprocess.Popen([sys.executable, '-c', "
        "'input()'], stdin=-1)\n"
        "subprocess.run(sys.argv[2:]); one.kill(); more.kill()"
    )
    lasts, held = said(*programs("fedge", code), "node", *programs("flwr-clientapp", _SAYS))
    assert lasts
    assert sorted(held) == [["node", False, True], ["node", True, True], ["worker", True, True]]


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        (["/opt/bin/python3.11", "/opt/bin/flower-superexec", "--insecure"], True),
        (["flower-supernode"], True),
        (["bash", "-c", "flower-supernode --insecure"], False),
        ([], False),
    ],
    ids=["by Python", "by itself", "in a shell", "ended"],
)  # fmt: skip
def test_programs_are_known_by_their_names(words, is_one):
    assert is_program(words) is is_one


def test_what_is_sent_is_what_comes():
    """The ClientApp is known by the process that starts one for each message."""
    worker, node = processes_from_numbers(as_numbers(HELD), float(THERE | 6))
    assert (worker.role, worker.pid, worker.rss_mib, worker.fds, worker.threads) == ("worker", 7, 1.5, 3, 2)
    assert (node.role, node.pid, node.fds, node.threads) == ("node", 6, None, 1)
    assert worker.known_as == node.known_as == THERE | 6
    assert machine_number(worker.known_as) == 5


@pytest.mark.parametrize(
    "numbers",
    [
        [], ROW[:-1], [*ROW, 1.0], [3.0, *ROW[1:]], [0.5, *ROW[1:]], [-1.0, *ROW[1:]],
        [0.0, 1e300, *ROW[2:]], [*ROW[:2], float("nan"), *ROW[3:]], [*ROW[:2], -2.0, *ROW[3:]],
        [*ROW[:3], float("inf"), 1.0], [*ROW[:3], -7.0, 1.0], ROW * 257, [0, 7, 1, 3, 2], ["0"] * 5,
    ],
    ids=["none", "short", "long", "no role", "half a role", "negative", "no pid", "nan", "less than none",
         "endless", "a count below", "too many", "whole numbers", "text"],
)  # fmt: skip
def test_what_cannot_be_is_nothing(numbers):
    assert processes_from_numbers(numbers, float(THERE | 6)) == []


@pytest.mark.parametrize("worker", [float("nan"), -1.0, 0.5, 2.0**60], ids=["nan", "below", "half", "large"])
def test_nor_is_what_comes_from_a_process_that_cannot_be(worker):
    assert processes_from_numbers(ROW, worker) == []


def test_a_process_of_another_machine_has_a_number_of_its_own():
    assert process_number(9, 5) == THERE | 9
    assert machine_number(process_number()) == machine_number(process_number(os.getppid()))
