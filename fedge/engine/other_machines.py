"""Memory, clocks and kernels of a Ray cluster's other machines, queried from idle workers between rounds.

Workers of the run's own Ray are descendants of this process and share its clock; they are not queried.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fedge.engine.worker_pool import free_workers
from fedge.exchange.engine import RemoteProcesses
from fedge.native.library import usable_kernels
from fedge.process.identity import machine_number, process_number
from fedge.process.resources.memory import ProcessMemory, measure_worker
from fedge.timing.clocks import MachineClock

_PATIENCE_S = 2.0
_READINGS = 3
_T = TypeVar("_T")


def query_remote_workers() -> RemoteProcesses:
    """Query all idle workers; workers without an answer within two seconds are left out."""
    workers = free_workers()
    answers = _query(workers, _measure)
    kernels = Counter(answer[2] for answer in answers if answer)
    this_machine = machine_number(process_number())
    processes_by_number: dict[int, ProcessMemory] = {}
    clocks: dict[int, MachineClock] = {}
    for worker, (name, processes, _) in [
        (candidate, answer) for candidate, answer in zip(workers, answers, strict=True) if answer
    ]:
        for number, process in processes:
            is_here = machine_number(number) == this_machine
            processes_by_number[number] = (
                process if is_here else replace(process, machine=name, number=number)
            )
        if processes and (machine := machine_number(processes[0][0])) not in (this_machine, *clocks):
            clocks[machine] = _compare_clock(worker, name)
    return RemoteProcesses(tuple(processes_by_number.values()), clocks, kernels)


def _measure(_: Any) -> tuple[str, list[tuple[int, ProcessMemory]], tuple[str, ...]]:
    """In a worker: Ray's name of its machine, process number → memory, kernels of the native step."""
    import ray

    name = str(ray.util.get_node_ip_address())
    measured = [(process_number(process.pid), process) for process in measure_worker()]
    return name, measured, usable_kernels()


def _read_clock(_: Any) -> float:
    """In a worker: its machine's clock in seconds."""
    return time.perf_counter()


def _compare_clock(worker: Any, name: str) -> MachineClock:
    """Clock of a worker's machine relative to the server's."""
    clock = MachineClock(name=name)
    for _ in range(_READINGS):
        sent_at = time.perf_counter()
        (reading,) = _query([worker], _read_clock)
        if reading is not None:
            clock = clock.asked(sent_at, reading, time.perf_counter())
    return clock


def _query(workers: Sequence[Any], call: Callable[[Any], _T]) -> list[_T | None]:
    """Each worker's answer to a call; None without one."""
    ray = sys.modules["ray"]
    references = [worker.__ray_call__.remote(call) for worker in workers]
    ready = ray.wait(references, num_returns=len(references), timeout=_PATIENCE_S)[0] if references else []
    return [_get_answer(reference) if reference in ready else None for reference in references]


def _get_answer(reference: Any) -> Any:
    """A worker's answer; None if it has died."""
    ray = sys.modules["ray"]
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:
        return None
