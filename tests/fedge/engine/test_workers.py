"""Threads that carry out jobs in order, and do without one that never comes back."""

import threading

from fedge.engine.workers import Workers


def collect(count, work):
    """Workers, and the dictionary and semaphore of what they have done."""
    done, ready = {}, threading.Semaphore(0)

    def take(job, result):
        done[job] = result
        ready.release()

    return Workers(count, work, take), done, ready


def test_one_thread_works_in_order():
    order = []
    workers, done, ready = collect(1, lambda job: order.append(job) or job * 10)
    for job in range(5):
        workers.submit(job)
    assert all(ready.acquire(timeout=10) for _ in range(5))
    assert order == [0, 1, 2, 3, 4]
    assert done == {job: 10 * job for job in range(5)}
    assert workers.close(10)


def test_a_job_that_hangs_is_given_up_and_its_thread_replaced():
    release, started = threading.Event(), threading.Event()

    def work(job):
        if job == "hangs":
            started.set()
            release.wait(30)
        return job

    workers, done, ready = collect(1, work)
    before = workers.ids
    workers.submit("hangs")
    workers.submit("next")
    assert started.wait(10)
    assert workers.give_up_late(60) == []
    assert workers.give_up_late(0) == ["hangs"]
    assert ready.acquire(timeout=10)
    assert done == {"next": "next"}
    assert workers.ids != before
    release.set()
    assert workers.close(10)
    assert done == {"next": "next"}  # what came back later is dropped


def test_closing_drops_what_waits_and_says_who_does_not_come_back():
    release, started = threading.Event(), threading.Event()

    def work(job):
        started.set()
        release.wait(30)

    workers, done, ready = collect(1, work)
    workers.submit("at work")
    workers.submit("waits")
    assert started.wait(10)
    assert not workers.close(0.01)
    release.set()
    assert ready.acquire(timeout=10)
    assert done == {"at work": None}
