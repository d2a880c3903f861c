import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.process.resources.growth import FDS_PER_ROUND, KIB_PER_ROUND, GrowthWatch, grows, slope
from fedge.process.resources.memory import ProcessMemory

ROUNDS = range(100)


def noise(seed, std):
    return np.random.default_rng(seed).normal(0, std, len(ROUNDS))


def test_slope_by_hand():
    """Points (0,0) (1,1) (2,5): slopes 1, 2.5 and 4, median 2.5; an outlier moves nothing."""
    assert slope([0, 1, 2], [0.0, 1.0, 5.0]) == 2.5
    line = [2.0 * n for n in range(21)]
    line[10] = 1e9
    assert slope(range(21), line) == 2.0
    assert slope([], []) == slope([3], [1.0]) == slope([3, 3], [1.0, 2.0]) == 0.0


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(2, 30), st.integers(1, 9))
def test_slope_of_a_line_is_its_slope_on_any_scale_of_rounds(rise, start, count, step):
    rounds = [step * n for n in range(count)]
    assert slope(rounds, [start + rise * n for n in rounds]) == rise


@pytest.mark.parametrize("seed", range(5))
def test_planted_growth_is_found_in_noise(seed):
    """100 KB per round under noise of 1 MiB; one descriptor per round."""
    memory = 300 * 1024 + np.array(ROUNDS) * 100e3 / 1024 + noise(seed, 1024)
    assert grows(ROUNDS, memory, KIB_PER_ROUND)
    assert grows(ROUNDS, 16 + np.array(ROUNDS), FDS_PER_ROUND)


@pytest.mark.parametrize("seed", range(5))
def test_noise_steps_and_what_levels_off_are_not_growth(seed):
    flat = 300 * 1024 + noise(seed, 1024)
    step = flat + np.where(np.array(ROUNDS) > 10 * seed + 30, 50 * 1024, 0)
    levels_off = flat + 50 * 1024 * (1 - np.exp(-np.array(ROUNDS) / 8))
    small = flat + np.array(ROUNDS) * 16
    for series in (flat, step, levels_off, small, flat[::-1]):
        assert not grows(ROUNDS, series, KIB_PER_ROUND)
    descriptors = 16 + np.random.default_rng(seed).integers(0, 4, len(ROUNDS))
    assert not grows(ROUNDS, descriptors, FDS_PER_ROUND)


def watch(rounds, rss_mib, fds, role="worker", pid=7):
    """Lines of a watch on one process in all rounds."""
    watching = GrowthWatch()
    return [
        line
        for n in range(1, rounds + 1)
        for line in watching.observe(n, [ProcessMemory(role, pid, rss_mib(n), fds(n))])
    ]


def test_each_kind_is_said_once():
    """From round 80 on: 20 that are not looked at, then 40, then 20 in which the growth goes on."""
    lines = watch(500, lambda n: 300 + n * 100e3 / 2**20, lambda n: 16 + n)
    assert lines == [
        f"worker process 7 grows steadily: 98 KiB of memory per round, {300 + 80e5 / 2**20:.0f} MiB now; "
        "see memory.csv",
        "worker process 7 grows steadily: 1.0 open files per round, 96 now; see memory.csv",
    ]
    assert watch(79, lambda n: 300 + n, lambda n: n) == []


def test_nothing_is_said_of_a_start_that_levels_off_or_where_descriptors_are_not_counted():
    assert watch(500, lambda n: 300 + min(n, 30), lambda n: 16 + min(n, 30)) == []
    assert watch(500, lambda n: 300.0, lambda n: None) == []


def test_caches_that_fill_for_sixty_rounds_are_no_leak():
    """As a server's do: 4 MiB from round 20 to 60, evenly, then no more. What begins anew is found anew."""

    def filled(n):
        return 426 + 0.1 * min(max(n - 20, 0), 42)

    assert watch(500, filled, lambda n: 16) == []
    leaks = watch(500, lambda n: filled(n) + max(n - 300, 0), lambda n: 16)
    assert [line.split(":")[0] for line in leaks] == ["worker process 7 grows steadily"]


def test_a_large_process_may_fluctuate_more():
    """10^-4 of 10 GiB is 1 MiB per round."""
    assert watch(500, lambda n: 10_240 + n * 0.5, lambda n: 16) == []
    assert len(watch(500, lambda n: 10_240 + n * 2.0, lambda n: 16)) == 1


def test_processes_that_are_replaced_start_anew_and_are_forgotten():
    """A new process every 30 rounds, each larger than the one before."""
    watching = GrowthWatch()
    for n in range(1, 300):
        assert not watching.observe(n, [ProcessMemory("worker", n // 30, 300.0 + n, 16 + n)])
    assert len(watching._rounds) <= 1
    assert len(watching._rounds_seen) == 1
