"""Numbers of clients that train, by leaf and by round, as a text says them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.config.participation import parse_participation
from fedge.config.registers.option import ConfigError

NUMBERS = st.one_of(st.integers(1, 99), st.integers(1, 100).map(lambda n: n / 100))


@pytest.mark.parametrize(
    ("text", "leaves", "at", "number"),
    [
        ("2", 3, (1, 2), 2),
        ("0.5", 3, (9, 0), 0.5),
        ("all", 2, (1, 1), 1.0),
        ("3, 2, all", 3, (5, 2), 1.0),
        ("1: all; 10: 2,1", 2, (9, 1), 1.0),
        ("1: all; 10: 2,1", 2, (10, 1), 1),
        ("1: all; 10: 2,1; 11: .25", 2, (4000, 0), 0.25),
    ],
)
def test_what_a_text_says(text, leaves, at, number):
    found = parse_participation(text, leaves).number_at(*at)
    assert (found, type(found)) == (number, type(number))


@given(st.lists(st.tuples(st.integers(2, 50), NUMBERS), max_size=5, unique_by=lambda pair: pair[0]), NUMBERS)
def test_the_newest_step_holds(later, first):
    steps = [(1, first), *sorted(later)]
    said = parse_participation("; ".join(f"{round_}: {number}" for round_, number in steps), 1)
    assert said.rounds == tuple(round_ for round_, _ in steps)
    for global_round in range(1, 55):
        assert said.number_at(global_round, 0) == [n for round_, n in steps if round_ <= global_round][-1]


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("0", "must be clients per leaf"),
        ("1.5", "must be clients per leaf"),
        ("0.0", "must be clients per leaf"),
        ("-1", "must be clients per leaf"),
        ("half", "must be clients per leaf"),
        ("1:", "must be clients per leaf"),
        ("0: 2", "must be clients per leaf"),
        ("2,1", "one number for all leaves or one for each of 3, but '2,1' has 2"),
        ("2: 1", "ascending order from round 1 on, but '2: 1' names 2"),
        ("1: 1; 5: 2; 5: 3", "names 1, 5, 5"),
        ("1: 1; 5: 2; 4: 3", "names 1, 5, 4"),
    ],
)
def test_what_says_nothing_is_refused_in_one_line(text, telling):
    with pytest.raises(ConfigError, match=r"^hierarchy\.participation must") as caught:
        from_run_config({"hierarchy.participation": text})
    assert telling in str(caught.value)
