"""Daemon threads to carry out jobs, the most urgent first; hanging threads are replaced.

Python cannot end a thread. A thread whose job takes too long is abandoned and replaced; its later result is
dropped. As daemons, such threads do not keep the process alive, unlike those of `concurrent.futures`.
"""

import threading
import time
from collections.abc import Callable
from itertools import count as numbers
from queue import Empty, PriorityQueue
from typing import Generic, TypeVar

from fedge.process.endings.awake_clock import awake

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

_LAST = 2**63  # due time of a closed queue's jobs


class Workers(Generic[_Job, _Result]):
    """`count` threads to carry out jobs by due time, then in the order of `submit`."""

    def __init__(
        self, count: int, work: Callable[[_Job], _Result], on_done: Callable[[_Job, _Result], None]
    ) -> None:
        """Start the threads.

        Args:
            count: number of jobs at a time.
            work: carries out a job; must not raise.
            on_done: called in the thread with each job and its result, once per job not given up.
        """
        self._work = work
        self._on_done = on_done
        self._jobs: PriorityQueue[tuple[int, int, _Job | None]] = PriorityQueue()
        self._numbers = numbers()
        self._running: dict[threading.Thread, tuple[_Job, float]] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        for _ in range(count):
            self._start_thread()

    def _start_thread(self) -> None:
        """Start one more thread."""
        thread = threading.Thread(target=self._serve, name="client", daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def ids(self) -> list[int]:
        """Native ids of the threads, as from `threading.get_native_id`."""
        return [thread.native_id for thread in self._threads if thread.native_id is not None]

    def submit(self, job: _Job, due: int = 0) -> None:
        """Queue a job; jobs with a smaller `due` come first, whenever queued."""
        self._jobs.put((due, next(self._numbers), job))

    def _serve(self) -> None:
        """Carry out jobs until told to stop, or given up."""
        thread = threading.current_thread()
        while (job := self._jobs.get()[2]) is not None:
            with self._lock:
                self._running[thread] = (job, awake())
            result = self._work(job)
            with self._lock:
                given_up = self._running.pop(thread, None) is None
            if given_up:
                return
            self._on_done(job, result)
            del job, result  # a waiting thread must not hold references

    def give_up_late(self, limit_s: float) -> list[_Job]:
        """Abandon and return the jobs running for more than `limit_s` seconds."""
        late_since = awake() - limit_s
        with self._lock:
            late = {thread: job for thread, (job, started) in self._running.items() if started < late_since}
            for thread in late:
                del self._running[thread]
                self._threads.remove(thread)
        for _ in late:
            self._start_thread()
        return list(late.values())

    def close(self, wait_s: float) -> bool:
        """Drop the queue, and wait up to `wait_s` seconds for running jobs; returns whether all ended."""
        try:
            while True:
                self._jobs.get_nowait()
        except Empty:
            pass
        for _ in self._threads:
            self._jobs.put((_LAST, next(self._numbers), None))
        deadline = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)
