import heapq
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from fedge.exchange.ordering import largest_first, waves

COSTS = st.dictionaries(st.integers(0, 50), st.floats(0, 1e4), max_size=12)


def seconds(order, costs, workers):
    """Time until the last job is done when each free worker takes the next one."""
    free = [0.0] * workers
    for client in order:
        heapq.heapreplace(free, free[0] + costs[client])
    return max(free)


def test_largest_first_by_hand():
    """Graham's worst case on 2 workers: 3 3 2 2 2 gives 3+2+2 = 7 s, where 3+3 and 2+2+2 take 6 s: 7/6."""
    costs = {0: 2.0, 1: 3.0, 2: 2.0, 3: 3.0, 4: 2.0}
    assert largest_first(costs) == [1, 3, 0, 2, 4]
    assert seconds(largest_first(costs), costs, 2) == 7.0
    assert seconds([0, 1, 2, 3, 4], costs, 2) == 6.0


def test_the_largest_last_is_what_it_avoids():
    costs = {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 4.0}
    assert seconds(sorted(costs), costs, 2) == 6.0
    assert seconds(largest_first(costs), costs, 2) == 4.0


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
def test_grahams_bound(jobs, workers):
    costs = {client: float(job) for client, job in enumerate(jobs)}
    best = min(
        max(sum(job for job, w in zip(jobs, where, strict=True) if w == worker) for worker in range(workers))
        for where in product(range(workers), repeat=len(jobs))
    )
    assert seconds(largest_first(costs), costs, workers) <= best * (4 / 3 - 1 / (3 * workers)) + 1e-9


def test_waves_by_hand():
    costs = {0: 1.0, 1: 8.0, 2: 3.0, 3: 4.0, 4: 5.0, 5: 2.0}
    assert waves(costs) == [[1, 4], [3, 2], [5, 0]]
    assert waves({0: 2.0, 1: 1.5}) == [[0, 1]]
    assert waves({0: 0.5, 1: 0.01}) == [[0, 1]]
    assert waves({}) == [[]]


@given(COSTS)
def test_waves_hold_every_client_once_and_fall(costs):
    split = waves(costs)
    assert [client for wave in split for client in wave] == largest_first(costs)
    assert len(split) <= 3
