"""Work on several threads: in order, and the first exception is raised."""

import os
import signal
import threading

import pytest

from fedge.process.resources.threads import available_cores, in_threads


def test_results_come_in_order_from_other_threads():
    found = in_threads(lambda item: (item * item, threading.current_thread().name), range(50))
    assert [square for square, _ in found] == [item * item for item in range(50)]
    assert all(name.startswith("fedge") for _, name in found)


def test_an_exception_is_raised():
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda item: 1 // item, [1, 0, 2])


def test_cores_are_those_that_may_be_used():
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_threads_of_its_own():
    """Those of its parent are not there: it would wait for ever."""
    assert in_threads(abs, [-1]) == [1]
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(in_threads(abs, [-2, -3]) != [2, 3])
    assert os.waitpid(child, 0)[1] == 0
