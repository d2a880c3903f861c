"""Work behind its owner's back: in order, one at a time, and its exceptions reach the owner once."""

import threading

import pytest

from fedge.process.background_jobs import BackgroundJob


def test_a_job_is_done_while_the_owner_goes_on_and_the_next_one_waits_for_it():
    behind, may, done = BackgroundJob(), threading.Event(), []
    behind.begin(lambda: (may.wait(10), done.append("first")))
    assert done == []
    may.set()
    behind.begin(lambda: done.append("second"))
    assert done[0] == "first"
    behind.finish()
    assert done == ["first", "second"]
    behind.finish()  # nothing is left to do


def test_what_a_job_raises_its_owner_gets_once():
    behind = BackgroundJob()
    behind.begin(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        behind.finish()
    behind.finish()
    behind.begin(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        behind.begin(lambda: None)


def test_leaving_waits_for_the_job_and_raises_what_it_has_raised():
    done = []
    with BackgroundJob() as behind:
        behind.begin(lambda: done.append(1))
    assert done == [1]
    with pytest.raises(ZeroDivisionError), BackgroundJob() as behind:
        behind.begin(lambda: 1 / 0)


def test_an_exception_of_the_owner_counts_more(caplog):
    def work():
        with BackgroundJob() as behind:
            behind.begin(lambda: 1 / 0)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert "the background job failed, too" in caplog.text
