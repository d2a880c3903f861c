"""Mobilities: moves by hand, chances over many draws, files, and those that lie."""

import numpy as np
import polars as pl
import pytest

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.rounds.mobility import Mover, refuse_impossible_moves

HOME = {0: 0, 1: 0, 3: 1, 4: 1, 6: 2, 7: 2}
UNSEEN = {2: 0, 5: 1, 8: 2}
SIZES = [3, 3, 3]
OFF = {"cluster.enabled": False, "partition.unseen-clients": 1}


def config_of(name, arguments="", **more):
    named = {"hierarchy.mobility": name, "hierarchy.mobility-args": arguments}
    return from_run_config({**OFF, **named, "num-server-rounds": 9, **more})


def moves(name, arguments="", global_round=2, at=HOME, seed=7):
    mover = Mover(config_of(name, arguments), seed, HOME, UNSEEN)
    return mover.moves(global_round, at, dict.fromkeys(HOME, 10))


def refused(name, arguments=""):
    with pytest.raises(ConfigError) as caught:
        refuse_impossible_moves(config_of(name, arguments), SIZES, 7)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_schedule_says_who_goes_where():
    said = '{"moves": "3: 4>0, 6>1; 5: 4>home; 6: 0>0"}'
    assert [moves("schedule", said, r) for r in (1, 2, 3, 4)] == [{}, {}, {4: 0, 6: 1}, {}]
    assert moves("schedule", said, 5, {**HOME, 4: 0}) == {4: 1}
    assert moves("schedule", said, 6) == {}  # it is there already


@pytest.mark.parametrize(
    ("said", "telling"),
    [
        ("", "must be rounds with clients and leaves"),
        ("3 4>0", "must be rounds"),
        ("0: 4>0", "must be rounds"),
        ("3: 4-0", "must be rounds"),
        ("3: 4>x", "must be rounds"),
        ("3: 4>0, 4>1", "sends 4 twice in round 3"),
        ("3: 4>3", "to leaves 0 to 2, but before global round 3 it sends 4 to 3"),
        ("3: 2>1", "it sends 2 to 1"),  # an unseen client
        ("3: 99>1", "it sends 99 to 1"),
        ("3: 99>home", "it sends 99 to 0"),
    ],
)
def test_a_schedule_that_cannot_be(said, telling):
    assert telling in refused("schedule", f'{{"moves": "{said}"}}')


def test_a_schedule_that_says_nothing_at_all():
    from fedge.run.preparation.parts import refuse_parts_that_do_not_fit

    with pytest.raises(ConfigError, match="must be given moves"):
        refuse_parts_that_do_not_fit(config_of("schedule"))


def test_a_chain_stays_and_goes_with_its_chances():
    """Over 3,000 rounds of six clients: 18,000 draws, of which 20 % go, half of these to each leaf."""
    found = [moves("markov", '{"stay": 0.8}', global_round) for global_round in range(2, 3002)]
    gone = sum(map(len, found))
    assert abs(gone / 18_000 - 0.2) < 4 * (0.2 * 0.8 / 18_000) ** 0.5
    to_two = sum(leaf == 2 for each in found for client, leaf in each.items() if client in (0, 1, 3, 4))
    of_these = sum(client in (0, 1, 3, 4) for each in found for client in each)
    assert abs(to_two / of_these - 0.5) < 4 * 0.5 / of_these**0.5
    assert moves("markov", '{"stay": 0.8}', 1) == {}
    assert moves("markov", '{"stay": 1}', 5) == {}
    assert len(moves("markov", '{"stay": 0}', 5)) == 6


def test_a_chain_by_its_matrix():
    """From 0 to 1, from 1 to 2, from 2 to 0 for certain."""
    round_and_round = '{"matrix": [[0, 1, 0], [0, 0, 1], [1, 0, 0]]}'
    assert moves("markov", round_and_round) == {0: 1, 1: 1, 3: 2, 4: 2, 6: 0, 7: 0}


@pytest.mark.parametrize(
    ("arguments", "telling"),
    [
        ('{"stay": 1.5}', "stay must be a number of 0 to 1"),
        ('{"stay": "no"}', "stay must be a number of 0 to 1"),
        ('{"stay": true}', "stay must be a number of 0 to 1"),
        ('{"matrix": [[1, 0], [0, 1]]}', "matrix must be 3 rows of 3 chances"),
        ('{"matrix": [[1, 0, 0], [0, 1, 0], [0, 0, 0.9]]}', "each row adding up to 1"),
        ('{"matrix": [[2, -1, 0], [0, 1, 0], [0, 0, 1]]}', "matrix must be 3 rows"),
        ('{"matrix": [[1], [0, 1]]}', "matrix must be 3 rows"),
        ('{"matrix": "even"}', "matrix must be 3 rows"),
    ],
)
def test_a_chain_that_cannot_be(arguments, telling):
    assert telling in refused("markov", arguments)


TRACE = {"round": [2, 2, 4], "client": [4, 2, 4], "leaf": [0, 0, 1]}  # client 2 is unseen, and stays


@pytest.mark.parametrize("kind", ["csv", "parquet", "clients.csv"])
def test_a_trace_is_followed(tmp_path, kind):
    frame = pl.DataFrame(TRACE | {"note": ["", "x", ""]})
    file = tmp_path / f"moves.{kind}"
    if kind == "clients.csv":
        frame = frame.rename({"round": "global_round"})
    getattr(frame, "write_parquet" if kind == "parquet" else "write_csv")(file)
    said = f'{{"path": "{file}"}}'
    assert [moves("trace", said, r) for r in (1, 2, 3)] == [{}, {4: 0}, {}]
    assert moves("trace", said, 4, {**HOME, 4: 0}) == {4: 1}
    refuse_impossible_moves(config_of("trace", said), SIZES, 7)


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("round,client\n2,4\n", "must have columns round, client and leaf"),
        ("round,client,leaf\n2,4,-1\n", "must have whole numbers of at least 0"),
        ("round,client,leaf\n2,4,1.0\n", "must have whole numbers of at least 0"),
        ("round,client,leaf\n2,4,0\n2,4,1\n", "client 4 at leaf 1, too"),
        ("round,client,leaf\n2,4,9\n", "it sends 4 to 9"),
        ("round,client,leaf\n2,99,1\n", "it sends 99 to 1"),
        ("round,client,leaf\n2,2,1\n", "it sends 2 to 1"),  # an unseen client
        (None, "must be a readable CSV or Parquet file"),
    ],
)
def test_a_trace_that_cannot_be(tmp_path, text, telling):
    file = tmp_path / "moves.csv"
    if text is not None:
        file.write_text(text)
    assert telling in refused("trace", f'{{"path": "{file}"}}')


# --- of a user's own ------------------------------------------------------------------------------------


def gather(places, turn, at=0):
    """All go to one leaf in round 3, and home again in round 4."""
    if turn.global_round == 4:
        return dict(zip(places.ids, places.home, strict=True))
    return dict.fromkeys(places.ids[places.windows > 0], at) if turn.global_round == 3 else {}


def a_list(places, turn):
    return [0, 1]


def a_stranger(places, turn):
    return {99: 0}


def nowhere(places, turn):
    return {0: places.leaves}


def half_way(places, turn):
    return {0: 0.5}


def truth(places, turn):
    return {0: True}


def failing(places, turn):
    raise KeyError("lost")


def later(places, turn):
    return {0: 9} if turn.global_round == 7 else {}


def at_once(places, turn):
    return {0: 9} if turn.global_round == 1 else {}


def at_last(places, turn):
    return {0: 9} if turn.global_round == 9 else {}


def after_the_run(places, turn):
    return {0: 9} if turn.global_round > 9 else {}


def test_one_of_one_s_own():
    name = f"{__name__}:gather"
    assert moves(name, '{"at": 2}', 3) == {0: 2, 1: 2, 3: 2, 4: 2}
    assert moves(name, "", 4, dict.fromkeys(HOME, 1)) == {0: 0, 1: 0, 6: 2, 7: 2}
    refuse_impossible_moves(config_of(name), SIZES, 7)
    refuse_impossible_moves(config_of(f"{__name__}:after_the_run"), SIZES, 7)


@pytest.mark.parametrize(
    ("name", "telling"),
    [
        ("a_list", "it returned [0, 1]"),
        ("a_stranger", "it sends 99 to 0"),
        ("nowhere", "it sends 0 to 3"),
        ("half_way", "it sends 0 to 0.5"),
        ("truth", "it sends 0 to True"),
        ("failing", "failed: KeyError: 'lost'"),
        ("later", "before global round 7 it sends 0 to 9"),
        ("at_once", "before global round 1 it sends 0 to 9"),
        ("at_last", "before global round 9 it sends 0 to 9"),
    ],
)
def test_one_that_lies_is_refused_before_the_run(name, telling):
    assert telling in refused(f"{__name__}:{name}")


def test_what_a_mobility_sees():
    seen = []

    def look(places, turn):
        seen.append((places, turn.global_round, turn.rng.random()))
        return {}

    from fedge.config.registers.parts import MOBILITIES

    name = MOBILITIES.given(look)
    try:
        for _ in (1, 2):
            mover = Mover(config_of(name), 7, HOME, UNSEEN)
            assert mover.moves(4, {**HOME, 0: 2}, dict.fromkeys(HOME, 10)) == {}
    finally:
        MOBILITIES.forget(name)
    places, global_round, drawn = seen[0]
    assert (places.ids.tolist(), places.leaf.tolist()) == ([0, 1, 3, 4, 6, 7], [2, 0, 1, 1, 2, 2])
    assert places.home.tolist() == [0, 0, 1, 1, 2, 2]
    assert places.windows.tolist() == [10] * 6
    assert (places.leaves, places.unseen, global_round) == (3, UNSEEN, 4)
    assert drawn == seen[1][2]
    assert isinstance(drawn, float | np.floating)
