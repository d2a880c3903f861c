"""Owners out of all proportion are left out; honest ones, however much they differ, never are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.data.outliers import incompatible_owners, outlying_clients
from fedge.data.own_windows import WindowsReport
from fedge.data.scaling import ChannelSums, channel_sums, scale_of

NAMES = ("x", "y", "z")


def honest(clients, seed=0, channels=3):
    """Sums of clients whose means, deviations and windows differ as people and devices do."""
    draw = np.random.default_rng(seed)
    units = 10.0 ** draw.integers(-3, 4, channels)
    told = {}
    for client in range(clients):
        count = int(draw.integers(1, 200)) * 128
        std = units * draw.lognormal(0, 0.5, channels)
        mean = units * draw.normal(0, 2, channels)
        told[client] = ChannelSums(count, tuple(mean.tolist()), tuple((count * std**2).tolist()))
    return told


def test_by_hand():
    """Means 0, …, 4, no deviations: about their median d is 2, 1, 0, 1, 2; with a sixth client D = 2.5.

    Of the six, log d is 0.92, 0.41, −0.69, −0.69, 0.41, more: MAD 0.80, σ = 1.19, exp(6 σ) > 100: 100 · 2.5.
    """
    told = {client: ChannelSums(10, (float(client),), (0.0,)) for client in range(5)}
    assert outlying_clients(told, ("x",)) == {}
    assert (
        outlying_clients(told | {5: ChannelSums(10, (252.0,), (0.0,))}, ("x",)) == {}
    )  # the median is 2.5 now
    found = outlying_clients(told | {5: ChannelSums(10, (254.0,), (0.0,))}, ("x",))
    assert found == {
        5: "channel 'x' has mean 254 and deviation 0, others have at most 2.5 about their middle"
    }


LIES = {
    "another unit": lambda part: replace(part, mean=tuple(m + 1e4 * _unit(part) for m in part.mean)),
    "mean 1e17": lambda part: replace(part, mean=(part.mean[0], 1e17, part.mean[2])),
    "deviation 1e15": lambda part: replace(part, spread=(*part.spread[:2], part.count * 1e30)),
    "a windows count": lambda part: ChannelSums(10**14, part.mean, (0.0, 0.0, 0.0)),
}


def _unit(part):
    return max(
        np.sqrt(spread / part.count) + abs(m) for spread, m in zip(part.spread, part.mean, strict=True)
    )


@pytest.mark.parametrize("lie", LIES)
@settings(max_examples=40, deadline=None)
@given(clients=st.integers(3, 12), seed=st.integers(0, 10**6), data=st.data())
def test_whoever_lies_is_left_out_alone(lie, clients, seed, data):
    """Fewer than a third of the clients, or one; what is pooled is what the honest ones tell."""
    told = honest(clients, seed)
    most = 1 if "count" in lie else max(1, (clients - 1) // 3)  # two invented counts weigh against each other
    liars = data.draw(st.sets(st.integers(0, clients - 1), min_size=1, max_size=most))
    said = {client: LIES[lie](part) if client in liars else part for client, part in told.items()}
    assert outlying_clients(told, NAMES) == {}
    assert set(outlying_clients(said, NAMES)) == liars


@settings(max_examples=60, deadline=None)
@given(clients=st.integers(4, 12), seed=st.integers(0, 10**6), size=st.floats(-3, 18), std=st.floats(-9, 17))
def test_what_a_lie_can_do_is_bounded(clients, seed, size, std):
    """Whatever one of at least four tells, the pooled deviation is at most 101 of the largest sizes."""
    told = honest(clients, seed, channels=1)
    count = told[0].count
    told[0] = ChannelSums(count, (10.0**size,), (count * 10.0 ** (2 * std),))
    kept = [part for client, part in told.items() if client not in outlying_clients(told, ("x",))]
    others = [part for client, part in told.items() if client != 0]
    middle = np.median([part.mean[0] for part in others])
    sizes = [np.hypot(np.sqrt(p.spread[0] / p.count), p.mean[0] - middle) for p in others]
    assert scale_of(kept).std[0] <= 101 * 2 * max(sizes)  # the median of all may be another's: at most twice


def test_fewer_than_three_say_nothing_about_each_other():
    honest_one, liar = ChannelSums(10, (1.0,), (10.0,)), ChannelSums(10, (1e17,), (10.0,))
    assert outlying_clients({0: honest_one}, ("x",)) == {}
    assert outlying_clients({0: honest_one, 1: liar}, ("x",)) == {}
    assert set(outlying_clients({0: honest_one, 1: liar, 2: honest_one}, ("x",))) == {1}


def test_of_three_clients_two_may_be_alike():
    """d is 1, 1 and 99: within 100 times what two have in common, beyond 30 times."""
    alike, other = ChannelSums(10, (0.0,), (10.0,)), ChannelSums(10, (0.0,), (10.0 * 99**2,))
    assert outlying_clients({0: alike, 1: alike, 2: other}, ("x",)) == {}
    assert set(outlying_clients({0: alike, 1: alike, 2: alike, 3: other}, ("x",))) == {3}
    assert set(outlying_clients({0: alike, 1: alike, 2: replace(other, spread=(1e5 * 2,))}, ("x",))) == {2}


def test_a_column_that_is_zero_nearly_everywhere_leaves_nobody_out():
    """One client of nine has a rare category; two of nine move in a channel in which others lie still."""
    usual = ChannelSums(100, (0.0, 1.0, 0.0), (0.0, 100.0, 1e-4))
    moves = ChannelSums(100, (0.3, 1.0, 0.0), (21.0, 100.0, 900.0))
    assert outlying_clients({**dict.fromkeys(range(7), usual), 7: moves, 8: moves}, NAMES) == {}


def shares(y, users, clients, draw):
    """Ways to deal windows to clients: users, runs of sorted labels, Dirichlet draws, a handful each."""
    by_label = np.argsort(y, kind="stable")
    yield np.array_split(by_label, clients)
    pieces = np.array_split(by_label, 2 * clients)
    order = draw.permutation(2 * clients)
    yield [np.concatenate([pieces[i], pieces[j]]) for i, j in zip(order[::2], order[1::2], strict=True)]
    for alpha in (0.05, 0.5):
        parts = [[] for _ in range(clients)]
        for label in np.unique(y):
            rows = draw.permutation(np.flatnonzero(y == label))
            cuts = (np.cumsum(draw.dirichlet([alpha] * clients)) * len(rows)).astype(int)[:-1]
            for part, piece in zip(parts, np.split(rows, cuts), strict=True):
                part.append(piece)
        yield [np.concatenate(part) for part in parts]
    yield [draw.choice(len(y), 5, replace=False) for _ in range(clients)]
    if users is not None:
        found = np.unique(users)
        yield [np.flatnonzero(users == user) for user in found]
        some = draw.choice(found, min(clients, len(found)), replace=False)
        yield [
            np.flatnonzero((users == user) & (y == draw.choice(np.unique(y[users == user])))) for user in some
        ]


REAL = {
    "hhar": ("hhar-9users/hhar-9users-128x3.npz", lambda x: x[:, :, ::8]),
    "motionsense": ("motionsense-24users/motionsense-24users-128x6.npz", lambda x: x[:, :, ::8]),
    "mnist": ("mnist/mnist-70000.npz", lambda x: x[:, None, ::2, ::2] / np.float32(255)),
    "pixels": ("mnist/mnist-70000.npz", lambda x: x.reshape(len(x), 784, 1)[:, ::5] / np.float32(255)),
    "cifar10": ("cifar10/cifar10-12000.npz", lambda x: x[:, :, ::4, ::4] / np.float32(255)),
}


@pytest.mark.parametrize("name", REAL)
def test_real_owners_are_never_left_out(shared_data, name):
    """Users, skewed labels, one activity or five windows each; channels, colours, pixels as columns."""
    path, as_windows = REAL[name]
    draw = np.random.default_rng(7)
    with np.load(shared_data / path, allow_pickle=False) as file:
        rows = np.sort(draw.choice(len(file["y"]), 3000, replace=False))
        x, y = as_windows(file["x"][rows]), file["y"][rows]
        users = file["user"][rows] if "user" in file else None
    names = tuple(map(str, range(x.shape[1])))
    for clients in (3, 4, 9, 24):
        for parts in shares(y, users, clients, draw):
            told = {client: channel_sums(x[part]) for client, part in enumerate(parts) if len(part)}
            assert outlying_clients(told, names) == {}


@pytest.mark.parametrize(
    ("mean", "spread", "said"),
    [
        (1e300, 10.0, "mean 1e+300 and deviation 1"),
        (float("nan"), 10.0, "mean nan and deviation 1"),
        (0.0, 1e61, "mean 0 and deviation 1e+30"),
        (0.0, float("inf"), "mean 0 and deviation inf"),
        (0.0, -10.0, "mean 0 and deviation nan"),
    ],
)
@pytest.mark.parametrize("clients", [0, 1, 8])
def test_what_cannot_be_is_left_out_however_few_there_are(mean, spread, said, clients):
    told = {client: ChannelSums(10, (0.1 * client,), (10.0,)) for client in range(clients)}
    found = outlying_clients(told | {9: ChannelSums(10, (mean,), (spread,))}, ("x",))
    assert found == {9: f"channel 'x' has {said}, but both must be numbers of at most 1e+18"}


# --- owners whose windows are of another kind ---------------------------------------------------------------

TOLD = WindowsReport(
    "mine.npz", "f" * 64, False, "blocks", (1, 8), "float32", ("p", "q"), ("x",), {},
    {"train": (1, 1), "val": (1, 0), "test": (0, 1)}, ChannelSums(16, (0.0,), (1.0,)),  # 2 × 8
)  # fmt: skip
OTHERS = [
    replace(TOLD, classes=("q", "p")), replace(TOLD, channels=("y",)), replace(TOLD, input_shape=(1, 9)),
    replace(TOLD, dtype="uint8"), replace(TOLD, split_kind="session"), replace(TOLD, y_shape=(2,)),
    replace(TOLD, y_dtype="float32"), replace(TOLD, counts={**TOLD.counts, "val": (0, 0)}),
]  # fmt: skip


def test_each_property_is_named():
    found = [incompatible_owners({0: TOLD, 3: other, 5: TOLD}) for other in OTHERS]
    assert [list(odd) for odd in found] == [[3]] * len(OTHERS)
    words = ["classes", "channels", "input shape", "dtype", "split kind", "y shape", "y dtype"]
    for odd, name in zip(found, words, strict=False):
        assert f"partition 3 has other {name} than most clients: " in odd[3]
    assert found[-1] == {3: "partition 3 has no val windows"}


def test_a_run_that_goes_on_takes_the_windows_of_its_start():
    known = {0: TOLD, 1: replace(TOLD, fingerprint="0" * 64)}
    assert incompatible_owners({0: TOLD, 1: TOLD, 2: TOLD}, known) == {
        1: "partition 1 has other windows than at the start of the run"
    }


def test_either_most_clients_own_windows_or_none_does():
    assert incompatible_owners({0: TOLD, 1: None, 2: TOLD}) == {
        1: "partition 1 names no windows of its own, unlike most clients"
    }
    assert incompatible_owners({0: None, 1: None, 2: TOLD}) == {
        2: "partition 2 names windows of its own, unlike most clients"
    }
    assert (
        incompatible_owners({0: None, 2: TOLD})
        == incompatible_owners({0: None})
        == incompatible_owners({})
        == {}
    )


@given(st.lists(st.sampled_from([TOLD, None, *OTHERS[:-1]]), max_size=9))
def test_only_less_than_half_are_ever_unlike(told):
    """Of two kinds of equal number neither is the usual one."""
    odd = incompatible_owners(dict(enumerate(told)))
    assert 2 * len(odd) < max(1, len(told))
    usual = [one for client, one in enumerate(told) if client not in odd]
    assert not odd or all(one == usual[0] for one in usual)
