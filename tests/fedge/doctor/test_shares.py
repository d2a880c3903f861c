"""How many clients fit, so that Ray places exactly as many."""

import math

from hypothesis import given
from hypothesis import strategies as st

from fedge.doctor.shares import shares_of


def test_by_hand():
    """16 cores, two GPUs of 24 GB: 90 % of one by 3 GB are seven; so sevenths, twice."""
    found = shares_of(16, 100_000, 1000, [24_000, 24_000], 3000)
    assert (found.at_a_time, found.per_gpu, found.limit) == (14, 7, "GPU memory")
    assert (found.num_gpus, found.num_cpus) == (0.1428, 1.1428)


def test_a_client_that_does_not_fit_runs_alone():
    found = shares_of(4, 500, 4000, [1000], 9000)
    assert (found.at_a_time, found.num_cpus, found.num_gpus, found.limit) == (1, 4.0, 1.0, "memory")


def test_threads_count_as_cores():
    assert shares_of(8, 1e6, 100, threads=4).at_a_time == 2


@given(
    st.integers(1, 256), st.floats(100, 1e6), st.floats(10, 5e4),
    st.lists(st.floats(1000, 1e5), max_size=8), st.floats(100, 5e4),
)  # fmt: skip
def test_ray_places_as_many_and_never_more(cores, available, client, gpus, gpu_client):
    """By its arithmetic: whole clients on the CPUs, and on each GPU; at least one, whatever the sizes."""
    found = shares_of(cores, available, client, gpus, gpu_client)
    assert found.at_a_time >= 1
    assert math.floor(cores / found.num_cpus) >= found.at_a_time
    assert found.num_cpus <= cores
    if gpus:
        on_gpus = math.floor(1 / found.num_gpus) * len(gpus)
        assert on_gpus >= found.at_a_time
        assert found.per_gpu * gpu_client <= 0.9 * min(gpus) or found.per_gpu == 1
    if found.at_a_time > 1:
        assert found.at_a_time * client <= 0.8 * available
