import threading
import time

import pytest
import torch

from fedge.process.identity import process_number
from fedge.timing.calls import (
    BEGAN,
    CUDA,
    FIRST_PART,
    LOAD,
    NUMBERS,
    PARTS,
    PROCESS,
    THREAD,
    TRAIN,
    WorkClock,
    cuda_mib,
    is_well_formed_call,
)


def test_a_call_says_who_when_and_what():
    before = time.perf_counter()
    clock = WorkClock()
    time.sleep(0.01)
    clock.lap(LOAD)
    time.sleep(0.02)
    clock.lap(TRAIN)
    clock.lap(LOAD)
    numbers = clock.finish()
    after = time.perf_counter()
    assert len(numbers) == NUMBERS
    assert is_well_formed_call(numbers)
    assert not is_well_formed_call(numbers[1:])
    assert (numbers[PROCESS], numbers[THREAD]) == (process_number(), threading.get_native_id())
    parts = dict(zip(PARTS, numbers[FIRST_PART:CUDA], strict=True))
    assert parts["train"] >= 0.02
    assert parts["load"] >= 0.01
    assert parts["deserialise"] == parts["evaluate"] == 0
    assert 0 < parts["serialise"] < 0.01
    assert before <= numbers[BEGAN] <= numbers[BEGAN] + sum(parts.values()) <= after
    assert clock.seconds == pytest.approx(sum(parts.values()))
    assert all(type(number) is float for number in numbers)


def test_threads_are_told_apart():
    found = []
    thread = threading.Thread(target=lambda: found.append(WorkClock().finish()))
    thread.start()
    thread.join()
    assert found[0][THREAD] != WorkClock().finish()[THREAD]
    assert found[0][PROCESS] == process_number()


def test_no_gpu_memory_without_a_gpu():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert cuda_mib() == (0.0, 0.0)


def test_gpu_memory_is_the_most_since_the_last_call():
    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    cuda_mib()
    block = torch.zeros(2**20, device="cuda")  # 4 MiB
    del block
    allocated, reserved = cuda_mib()
    assert allocated >= 4
    assert reserved >= allocated
    assert cuda_mib()[0] < allocated
