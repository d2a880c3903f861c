"""Draws follow from (seed, device, attempt), in whatever order they are asked for."""

from hypothesis import given
from hypothesis import strategies as st

from fedge.devices.population.draws import JobDraws, PickDraws

PLACES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), min_size=1, max_size=30)


@given(PLACES)
def test_a_draw_is_that_of_its_device_and_attempt(places):
    draws = JobDraws(7)
    for device, attempt in places:
        assert draws.draw(device, attempt) == JobDraws(7).draw(device, attempt)


def test_draws_differ_by_seed_device_and_attempt():
    of = [
        JobDraws(seed).draw(device, attempt) for seed in (1, 2) for device in (0, 1) for attempt in (1, 2, 17)
    ]
    assert len(set(of)) == len(of)
    assert all(0 <= number < 1 for draw in of for number in draw[1:])


@given(st.integers(0, 600))
def test_picks_go_on_at_any_count(count):
    whole = PickDraws(3, 1)
    numbers = [whole.next(10) for _ in range(610)]
    again = PickDraws(3, 1, count)
    assert [again.next(10) for _ in range(5)] == numbers[count : count + 5]
    assert set(numbers) == set(range(10))
    assert again.count == count + 5
