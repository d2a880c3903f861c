"""Selections of a leaf's clients: by hand, over many draws, and those that lie."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import CLIENT_SELECTIONS
from fedge.leaf.selection import reads_turns, selected, try_client_selection
from fedge.leaf.training_history import Turns
from fedge.seeding import Purpose, numpy_stream

WINDOWS = {3: 10, 5: 10, 7: 20, 8: 60}


def hierarchy(name, arguments=""):
    return from_run_config({"hierarchy.selection": name, "hierarchy.selection-args": arguments}).hierarchy


def chosen(name, leaf_round, turns=None, count=2, arguments=""):
    candidates = (turns or Turns()).candidates(WINDOWS)
    return selected(hierarchy(name, arguments), candidates, count, 7, (leaf_round, 1), 1, leaf_round)


def rounds_of(name, rounds, count=2, losses=lambda client: 0.5, arguments=""):
    """Clients chosen round after round, and the turns after them."""
    turns, found = Turns(), []
    for number in range(1, rounds + 1):
        found.append(chosen(name, number, turns, count, arguments))
        turns.note(found[-1], {client: losses(client) for client in found[-1]}, number)
    return found, turns


def test_uniform_is_the_draw_that_rounds_have_always_had():
    rng = numpy_stream(7, Purpose.SAMPLING, 4, 1)
    wanted = sorted(int(c) for c in rng.choice(tuple(WINDOWS), size=2, replace=False))
    assert chosen("uniform", 4) == wanted


@pytest.mark.parametrize("name", CLIENT_SELECTIONS.names)
def test_all_train_where_all_are_asked_for(name):
    assert chosen(name, 1, count=4) == list(WINDOWS)


@pytest.mark.parametrize("name", CLIENT_SELECTIONS.names)
@given(st.integers(1, 3), st.integers(1, 50))
def test_as_many_as_are_asked_for_each_once(name, count, leaf_round):
    found = chosen(name, leaf_round, count=count)
    assert len(set(found)) == count
    assert found == sorted(found)
    assert set(found) <= WINDOWS.keys()
    assert chosen(name, leaf_round, count=count) == found


def test_round_robin_takes_turns_by_number():
    found, _ = rounds_of("round-robin", 4, count=3)
    assert found == [[3, 5, 7], [3, 5, 8], [3, 7, 8], [5, 7, 8]]


def test_without_reuse_nobody_is_asked_again_before_all_have_been():
    found, _ = rounds_of("without-reuse", 40)
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert sorted(first + second) == list(WINDOWS)
    assert len({tuple(each) for each in found}) == 6  # all pairs come


def test_by_size_draws_by_windows():
    """Client 8 has 60 of 100 windows: alone it is drawn in 60 % of 2,000 rounds (4 SE: 4.4 %)."""
    drawn = [chosen("by-size", number, count=1)[0] for number in range(1, 2001)]
    assert abs(np.mean(np.array(drawn) == 8) - 0.6) < 0.044
    assert abs(np.mean(np.array(drawn) == 3) - 0.1) < 0.027


def test_power_of_choice_takes_those_with_the_highest_loss():
    """All are candidates, d = 4. Rounds 1 and 2 ask everybody once: unknown losses come first. Then 7, 8."""
    found, turns = rounds_of("power-of-choice", 2, losses=lambda client: client / 10)
    assert sorted(found[0] + found[1]) == list(WINDOWS)
    assert chosen("power-of-choice", 3, turns) == [7, 8]
    turns.note([7, 8], {7: 0.1}, 3)  # 8 fails, its loss stays .8
    assert chosen("power-of-choice", 4, turns) == [5, 8]


def test_power_of_choice_of_as_many_candidates_as_are_asked_for_draws_by_windows():
    _, turns = rounds_of("power-of-choice", 2, losses=lambda client: 9.0 if client == 3 else 0.1)
    drawn = [chosen("power-of-choice", n, turns, 1, '{"candidates": 1}')[0] for n in range(1, 2001)]
    assert abs(np.mean(np.array(drawn) == 8) - 0.6) < 0.044


def test_power_of_choice_has_twice_as_many_candidates_as_are_asked_for():
    _, turns = rounds_of("power-of-choice", 2, losses=lambda client: client / 10)
    drawn = {
        d: [chosen("power-of-choice", n, turns, 1, f'{{"candidates": {d}}}') for n in range(1, 51)]
        for d in (0, 2, 3)
    }
    assert drawn[0] == drawn[2] != drawn[3]


def test_which_selections_go_by_earlier_turns():
    assert [reads_turns(name) for name in CLIENT_SELECTIONS.names] == [False, False, True, True, True]
    assert reads_turns(f"{__name__}:biggest")


# --- of a user's own ------------------------------------------------------------------------------------


def biggest(clients, turn):
    return clients.ids[np.argsort(-clients.windows)][: turn.count]


def nobody(clients, turn):
    return []


def none(clients, turn):
    return None


def a_stranger(clients, turn):
    return [int(clients.ids[0]), 99]


def one_twice(clients, turn):
    return [int(clients.ids[0])] * 2


def a_truth(clients, turn):
    return [True]


def a_share(clients, turn):
    return [0.5]


def failing(clients, turn):
    raise KeyError("lost")


def one_argument(clients):
    return []


def lies_later(clients, turn):
    return [99] if clients.updates.sum() else list(clients.ids)


def test_one_of_one_s_own_chooses():
    assert chosen(f"{__name__}:biggest", 1) == [7, 8]
    try_client_selection(hierarchy(f"{__name__}:biggest"))


@pytest.mark.parametrize(
    ("name", "telling"),
    [
        ("nobody", r"returned \[\]; fix it"),
        ("none", "returned None; fix it"),
        ("a_stranger", "returned 99, which is none of"),
        ("one_twice", r"returned \[4, 4\]; fix it"),
        ("a_truth", "returned True, which is none of"),
        ("a_share", "returned 0.5, which is none of"),
        ("failing", "failed: KeyError: 'lost'.*fix it"),
        ("one_argument", "failed: TypeError"),
        ("lies_later", "in leaf round 4 it returned 99"),
    ],
)
def test_one_that_lies_is_refused_before_a_run(name, telling):
    with pytest.raises(ConfigError, match=telling) as caught:
        try_client_selection(hierarchy(f"{__name__}:{name}"))
    assert "hierarchy.selection" in str(caught.value)


@pytest.mark.parametrize("value", ["-1", "1.5", "true", '"two"'])
def test_candidates_that_are_no_number_are_refused(value):
    with pytest.raises(ConfigError, match=r"selection-args\.candidates must be a whole number"):
        try_client_selection(hierarchy("power-of-choice", f'{{"candidates": {value}}}'))


def test_a_turn_tells_where_the_run_is():
    seen = []

    def look(clients, turn):
        seen.append((turn.count, turn.leaf, turn.global_round, turn.leaf_round))
        return clients.ids[:1]

    name = CLIENT_SELECTIONS.given(look)
    try:
        assert selected(hierarchy(name), Turns().candidates(WINDOWS), 3, 7, (9, 1), 1, 5) == [3]
    finally:
        CLIENT_SELECTIONS.forget(name)
    assert seen == [(3, 1, 5, 9)]
