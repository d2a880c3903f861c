"""Associations of clients with leaves: by hand, over random deals, files of delays, and those that lie."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import make_windows

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import ASSOCIATIONS
from fedge.data.association import DealtClients, associated, label_balance, share
from fedge.data.partition import partition

RNG = np.random.default_rng(0)
NAMES = [name for name in ASSOCIATIONS.names if name != "none"]


def dealt_of(counts):
    counts = np.array(counts, np.int64)
    return DealtClients(np.arange(len(counts)), counts, counts.sum(axis=1))


PURE = dealt_of([[10, 0], [10, 0], [0, 10], [0, 10]])


def distance(dealt, leaf):
    """Σ_l Σ_c |N_lc / N_l − N_c / N|, written out."""
    overall = dealt.counts.sum(axis=0) / dealt.counts.sum()
    found = 0.0
    for each in sorted(set(np.asarray(leaf).tolist())):
        mine = dealt.counts[np.asarray(leaf) == each].sum(axis=0)
        found += float(np.abs(mine / mine.sum() - overall).sum())
    return found


def divergence(dealt, leaf, delays, gamma):
    """Mean delay + γ Σ_l N_l / N · KL(P_l ‖ P), written out."""
    overall, total = dealt.counts.sum(axis=0) / dealt.counts.sum(), dealt.counts.sum()
    found = float(np.mean([delays[i, each] for i, each in enumerate(leaf)]))
    for each in set(np.asarray(leaf).tolist()):
        mine = dealt.counts[np.asarray(leaf) == each].sum(axis=0)
        shares = mine / mine.sum()
        kl = sum(p * np.log(p / q) for p, q in zip(shares, overall, strict=True) if p > 0)
        found += gamma * mine.sum() / total * kl
    return found


def test_two_leaves_get_one_client_of_each_class():
    """Dealt, leaf 0 has class 0 alone: a distance of 2. One swap makes both leaves half and half."""
    for associate in (label_balance, share):
        leaf = associate(PURE, np.array([2, 2]), RNG)
        assert sorted(np.bincount(leaf).tolist()) == [2, 2]
        assert distance(PURE, [0, 0, 1, 1]) == 2.0
        assert distance(PURE, leaf) == 0.0


def test_who_is_balanced_as_dealt_stays():
    dealt = dealt_of([[10, 0], [0, 10], [10, 0], [0, 10]])
    for associate in (label_balance, share):
        assert associate(dealt, np.array([2, 2]), RNG).tolist() == [0, 0, 1, 1]


COUNTS = st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any), min_size=4, max_size=9)


@given(COUNTS, st.integers(1, 3))
def test_no_swap_of_two_clients_is_better(counts, first):
    dealt = dealt_of(counts)
    places = np.array([first, len(counts) - first])
    nothing = np.zeros((len(counts), 2))
    for associate, cost in (
        (label_balance, distance),
        (share, lambda dealt, leaf: divergence(dealt, leaf, nothing, 1.0)),
    ):
        leaf = associate(dealt, places, RNG)
        assert np.bincount(leaf, minlength=2).tolist() == places.tolist()
        found = cost(dealt, leaf)
        assert found <= cost(dealt, np.repeat([0, 1], places)) + 1e-9
        for one in range(len(counts)):
            for other in range(one):
                swapped = leaf.copy()
                swapped[[one, other]] = leaf[[other, one]]
                assert cost(dealt, swapped) >= found - 1e-9


def file_of(folder, rows, kind="csv"):
    frame = pl.DataFrame(rows, schema=["client", "leaf", "delay"], orient="row")
    file = folder / f"delays.{kind}"
    getattr(frame, "write_parquet" if kind == "parquet" else "write_csv")(file)
    return str(file)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_delay_and_shares_are_weighed(tmp_path, kind):
    """Clients 0 and 1 (class 0) are near leaf 0, 2 and 3 near leaf 1: 1 s, else 5 s.

    As dealt: mean delay 1, divergence ln 2. Mixed: mean delay 3, divergence 0. So γ ln 2 > 2 mixes.
    """
    path = file_of(
        tmp_path, [(c, leaf, 1.0 if c // 2 == leaf else 5.0) for c in range(4) for leaf in (0, 1)], kind
    )
    places = np.array([2, 2])
    assert share(PURE, places, RNG, gamma=2.8, delays=path).tolist() == [0, 0, 1, 1]
    assert distance(PURE, share(PURE, places, RNG, gamma=2.9, delays=path)) == 0.0
    crossed = file_of(
        tmp_path, [(c, leaf, 5.0 if c // 2 == leaf else 1.0) for c in range(4) for leaf in (0, 1)], kind
    )
    assert share(PURE, places, RNG, gamma=0, delays=crossed).tolist() == [1, 1, 0, 0]


def test_only_pairs_that_the_file_has_are_possible(tmp_path):
    """Clients 0 and 1 reach leaf 1 alone: no balance there, but everybody stands where it can."""
    path = file_of(tmp_path, [(0, 1, 1.0), (1, 1, 1.0), (2, 0, 1.0), (2, 1, 1.0), (3, 0, 1.0)])
    for associate in (label_balance, share):
        assert associate(PURE, np.array([2, 2]), RNG, delays=path).tolist() == [1, 1, 0, 0]
        with pytest.raises(ConfigError, match="must leave every client a leaf with a place"):
            associate(PURE, np.array([3, 1]), RNG, delays=path)


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("client,leaf\n0,1\n", "must have columns client, leaf and delay"),
        ("client,leaf,delay\n0,2,1\n", "leaf \\(0 to 1\\)"),
        ("client,leaf,delay\n0,1,-1\n", "seconds of at least 0"),
        ("client,leaf,delay\n0,1,nan\n", "seconds of at least 0"),
        ("client,leaf,delay\nx,1,1\n", "must have client"),
    ],
)
def test_a_file_that_cannot_be(tmp_path, text, telling):
    (tmp_path / "delays.csv").write_text(text)
    with pytest.raises(ConfigError, match=telling):
        share(PURE, np.array([2, 2]), RNG, delays=str(tmp_path / "delays.csv"))


@pytest.mark.parametrize("gamma", [-1, True, "1", float("inf"), float("nan")])
def test_a_gamma_that_cannot_be(gamma):
    with pytest.raises(ConfigError, match=r"gamma must be a number of at least 0"):
        share(PURE, np.array([2, 2]), RNG, gamma=gamma)


# --- in a deal ------------------------------------------------------------------------------------------


def windows_of(users="abcdef"):
    """Users of one class each: the first half of class 0, the others of class 1."""
    rows = [
        (u, None, f"{s}", int(at >= len(users) // 2))
        for at, u in enumerate(users)
        for s in range(4)
        for _ in "12"
    ]
    return make_windows(rows, classes=2)


def deal(name, unseen=0, sizes=(3, 3), **options):
    named = {"hierarchy.association": name, "hierarchy.num-servers": len(sizes), "partition.deal": "sorted"}
    config = from_run_config({**named, "partition.unseen-clients": unseen, **options})
    return partition(windows_of("abcdefgh"[: sum(sizes)]), config, list(sizes), 3), config


def classes_of(dealt):
    windows = windows_of("abcdefgh"[: len(dealt.clients)])
    return [sorted(set(windows.y[part[0]].tolist())) for part in dealt.clients]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_dealt_changes_hands(name):
    """Leaf 0 was dealt users of class 0 alone; now both leaves have both, in the order of the deal."""
    before, after = classes_of(deal("none")[0]), classes_of(deal(name)[0])
    assert before == [[0]] * 3 + [[1]] * 3
    assert sorted(map(tuple, after)) == sorted(map(tuple, before))
    for leaf in (after[:3], after[3:]):
        assert {tuple(each) for each in leaf} == {(0,), (1,)}


def test_unseen_clients_stay():
    plain, moved = (deal(name, unseen=1, sizes=(4, 4))[0] for name in ("none", "label-balance"))
    assert plain.unseen_clients == moved.unseen_clients == {3, 7}
    for client in (3, 7):
        for one, other in zip(plain.clients[client], moved.clients[client], strict=True):
            assert np.array_equal(one, other)
    assert sorted(p[0][0] for p in plain.clients) == sorted(p[0][0] for p in moved.clients)


def test_windows_without_classes_are_refused():
    windows = windows_of()
    numbers = replace(windows, y=windows.y.astype(np.float32), classes=("height",))
    _, config = deal("label-balance")
    parts = deal("none")[0].clients
    with pytest.raises(ConfigError, match="label-balance needs windows of one class each"):
        associated(parts, numbers, config, [3, 3], 3)


def backwards(clients, places, rng, by=1):
    return np.repeat(np.arange(len(places)), places)[::-by]


def too_many(clients, places, rng):
    return [0] * len(clients.ids)


def shares_of_leaves(clients, places, rng):
    return [0.5] * len(clients.ids)


def ragged(clients, places, rng):
    return [[0, 1], [0]]


def too_few(clients, places, rng):
    return [0]


def none(clients, places, rng):
    return None


def failing(clients, places, rng):
    raise KeyError("lost")


def elsewhere(clients, places, rng):
    return [-1, 0, 0, 1, 1, 1]


def test_one_of_one_s_own():
    plain, moved = deal("none")[0], deal(f"{__name__}:backwards")[0]
    for client, was in enumerate([3, 4, 5, 0, 1, 2]):
        assert np.array_equal(moved.clients[client][0], plain.clients[was][0])


TURNS = []


def by_turns(clients, places, rng):
    TURNS.append(0)
    return list(np.roll(np.repeat(np.arange(len(places)), places), len(TURNS)))


def in_places(clients, places, rng):
    places[:] = [1, 5]
    return [0, 1, 1, 1, 1, 1]


def test_one_of_its_own_memory_or_in_other_places_is_refused():
    """A seed says all; numbers of places are the run's."""
    with pytest.raises(ConfigError, match=r"hierarchy\.association .* must give the same result"):
        deal(f"{__name__}:by_turns")
    with pytest.raises(ConfigError, match="must return the leaf of each"):
        deal(f"{__name__}:in_places")


@pytest.mark.parametrize(
    "name", ["too_many", "shares_of_leaves", "ragged", "too_few", "none", "failing", "elsewhere"]
)
def test_one_that_lies_is_refused_in_one_line(name):
    with pytest.raises(ConfigError, match=r"hierarchy\.association .*fix it") as caught:
        deal(f"{__name__}:{name}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        ({"scenario": "label-skew"}, "which decides what leaves hold"),
        ({"devices.pieces": 2, "asynchrony.rule": "fedbuff", "scaffold.enabled": False}, "devices.pieces=0"),
    ],
)  # fmt: skip
def test_what_it_cannot_stand_beside(options, telling):
    with pytest.raises(ConfigError, match=telling):
        from_run_config({"hierarchy.association": "label-balance", **options})
