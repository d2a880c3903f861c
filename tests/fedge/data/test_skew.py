"""Ways to deal windows: numbers by hand, and what holds for every draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.partition import partition
from fedge.data.skew import class_shares, fill_empty_clients, independent_shares, quantity_shares
from hhar.windows.window_file import Windows


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def windows(per_class: int = 40, classes: int = 5) -> Windows:
    """Windows without sessions, in time order of one user, class after class."""
    y = np.repeat(np.arange(classes), per_class)
    x = rng().normal(size=(len(y), 1, 4)).astype(np.float32)
    names = tuple("abcdefghij"[:classes])
    return Windows(x, y, np.full(len(y), "u"), None, None, names, ("v",))


@given(clients=st.integers(5, 20), count=st.integers(1, 5), seed=st.integers(0, 99))
def test_every_client_has_its_classes(clients: int, count: int, seed: int) -> None:
    """Client i owns class i mod Q and as many others; the owners of a class share it evenly."""
    shares = class_shares([clients], 5, rng(seed), count)
    assert (np.count_nonzero(shares, axis=0) == count).all()
    assert all(shares[client % 5, client] > 0 for client in range(clients))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert all(len(set(row[row > 0])) == 1 for row in shares)


def test_classes_that_cannot_be_dealt_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"must be at most the classes of the data, 5, but is 6"):
        class_shares([7], 5, rng(), 6)
    with pytest.raises(ConfigError, match=r"none of 2 clients with 1 each owns class 2"):
        class_shares([2], 5, rng(), 1)


def test_numbers_of_windows_are_log_normal() -> None:
    """With σ = 0 all the same; else logarithms of 4,000 clients' shares deviate by σ."""
    assert (quantity_shares([2, 2], 3, rng(), 0.0) == 0.25).all()
    shares = quantity_shares([4000], 2, rng(), 0.7)
    assert (shares[0] == shares[1]).all()
    assert np.log(shares[0]).std() == pytest.approx(0.7, abs=0.03)


def test_foreign_shares_are_even_within_a_leaf() -> None:
    shares = independent_shares([2, 3], 4, rng(), 0.1)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares[:, 0] == shares[:, 1]).all()
    assert (shares[:, 2] == shares[:, 4]).all()


def test_the_poor_get_from_the_largest_of_their_leaf() -> None:
    """Clients 0, 1 under one leaf, 2, 3 under another: 1 gets of 0, and 3 of 0, since 2 has one window."""
    client = np.array([0, 0, 0, 0, 2, -1])
    dealt = fill_empty_clients(client, np.arange(6), [2, 2])
    assert dealt.tolist() == [0, 0, 3, 1, 2, -1]
    assert fill_empty_clients(client[4:5], np.arange(1), [2, 2]).tolist() == [2]  # nobody has one to spare


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999))
def test_ten_by_ten_leaves_nobody_without_windows(seed: int) -> None:
    """Dirichlet .1 over ten leaves and ten clients each: windows of all splits, every window once."""
    config = from_run_config(
        {
            "partition.kind": "two-level", "data.guard-windows": 0,
            "partition.kind-args.alpha-leaves": 0.1, "partition.kind-args.alpha-clients": 0.1,
        }
    )  # fmt: skip
    data = windows(120, 10)
    dealt = partition(data, config, [10] * 10, seed)
    assert min(len(part) for parts in dealt.clients for part in parts) >= 1
    rows = np.concatenate([part for parts in dealt.clients for part in parts])
    assert sorted(rows.tolist()) == list(range(len(data.y)))


def mix(dealt: list[tuple[np.ndarray, ...]], y: np.ndarray, leaf: int, part: int) -> np.ndarray:
    rows = np.concatenate([parts[part] for parts in dealt[leaf * 4 : leaf * 4 + 4]])
    return np.bincount(y[rows], minlength=10) / len(rows)


@pytest.mark.parametrize(("deal", "near"), [("matched", True), ("as-published", False)])
def test_test_windows_follow_the_training_mix_or_do_not(deal: str, near: bool) -> None:
    """Total variation between the training and the test mix of each of four leaves, over ten seeds."""
    data = windows(100, 10)
    config = from_run_config(
        {
            "partition.kind": "two-level", "data.guard-windows": 0, "partition.kind-args.test-deal": deal,
            "partition.kind-args.alpha-leaves": 0.1, "partition.kind-args.alpha-clients": 1.0,
        }
    )  # fmt: skip
    found = []
    for seed in range(10):
        dealt = partition(data, config, [4] * 4, seed).clients
        found += [
            abs(mix(dealt, data.y, leaf, 0) - mix(dealt, data.y, leaf, 2)).sum() / 2 for leaf in range(4)
        ]
    assert (np.mean(found) < 0.1) if near else (np.mean(found) > 0.5)
