import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import PARTITIONS, SCENARIOS
from fedge.config.registers.traits import OWNERS
from fedge.config.topology import clients_per_leaf
from fedge.data.owners import clients_of_owners
from fedge.data.partition import Partition, own_partition, partition
from fedge.data.scenario import Change
from fedge.data.split import TEST, TRAIN, VAL
from fedge.seeding import Purpose, numpy_stream
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import load_windows

SPLITS = (TRAIN, VAL, TEST)


def deal(windows, clients_per_server, seed=0, **keys):
    """Partition `windows` over leaves of the given sizes; keys as in `partition__kind="iid"`."""
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in keys.items()}
    return partition(windows, from_run_config(named), clients_per_server, seed)


def holders(dealt: Partition, num_windows):
    """(client, split) per window, −1 where nobody has it; each window may be held once."""
    client, split = np.full((2, num_windows), -1)
    for k, parts in enumerate(dealt.clients):
        for part, indices in zip(SPLITS, parts, strict=True):
            assert (np.diff(indices) > 0).all(), "sorted"
            assert (client[indices] == -1).all(), "held once"
            client[indices], split[indices] = k, part
    return client, split


@st.composite
def window_rows(draw, sessions):
    """Draw 2 to 5 users on 1 or 2 devices with 2 or 3 classes of some sessions each."""
    devices = draw(st.sampled_from([(None,), ("phone", "watch")]))
    num_classes = draw(st.integers(2, 3))
    rows = []
    for user in "abcde"[: draw(st.integers(2, 5))]:
        for label in range(num_classes):
            bouts = draw(st.lists(st.integers(1, 6), min_size=3, max_size=6))
            for device in devices:
                for bout, size in enumerate(bouts):
                    rows += [(user, device, f"{label}/{bout}" if sessions else None, label)] * size
    if draw(st.booleans()):
        order = draw(st.permutations(range(len(rows))))
        rows = [rows[i] for i in order]
    return rows


def leaves_of(num_clients):
    return [num_clients - num_clients // 2, num_clients // 2] if num_clients > 1 else [1]


CASES = st.tuples(st.sampled_from(PARTITIONS.names), st.booleans(), st.integers(1, 7), st.integers(0, 99))


def try_to_deal(windows, kind, split_users, num_clients, seed, **keys):
    """Partition, or give up on the example where the data is too little for so many clients."""
    try:
        keys["partition__kind"] = kind
        if split_users and PARTITIONS.has(kind, OWNERS):
            keys["partition__kind_args__split_users"] = True
        return deal(windows, leaves_of(num_clients), seed, **keys)
    except ConfigError:
        assume(False)
        raise


@pytest.mark.slow
@settings(max_examples=120)
@given(window_rows(sessions=True), CASES)
def test_sessions_are_never_on_two_sides(make_windows, rows, case):
    windows = make_windows(rows)
    dealt = try_to_deal(windows, *case)
    client, split = holders(dealt, len(rows))
    assert dealt.split_kind == "session"
    assert (client >= 0).all(), "all windows are used"
    session = np.array([f"{user}/{session}" for user, _, session, _ in rows])
    for name in np.unique(session):
        # one split for the whole recording, at whichever clients and on whichever devices it lies
        assert len(set(split[session == name])) == 1


@pytest.mark.slow
@settings(max_examples=120)
@given(window_rows(sessions=False), CASES, st.integers(0, 2))
def test_neighbouring_windows_are_never_on_two_sides(make_windows, rows, case, guard):
    kind, split_users, num_clients, seed = case
    windows = make_windows(rows)
    dealt = try_to_deal(windows, kind, split_users, num_clients, seed, data__guard_windows=guard)
    client, split = holders(dealt, len(rows))
    assert dealt.split_kind == "blocks"
    stream = np.array([f"{user}/{device}/{label}" for user, device, _, label in rows])
    for name in np.unique(stream):
        members = np.flatnonzero(stream == name)
        for distance in range(1, guard + 1):
            near, far = members[:-distance], members[distance:]
            both = (client[near] >= 0) & (client[far] >= 0)
            assert (split[near] == split[far])[both].all()
            if kind == "user":
                assert (client[near] == client[far])[both].all()
        if kind == "user":
            # a client's blocks of a class of a stream follow each other: training, validation, test
            for k in np.unique(client[members][client[members] >= 0]):
                assert (np.diff(split[members[client[members] == k]]) >= 0).all()


def test_without_split_users_only_guard_windows_are_dropped(make_windows):
    """20 windows per user and class, two guards of one window: 18 are used, of 4 streams: 72."""
    rows = [(user, None, None, label) for user in "ab" for label in (0, 1) for _ in range(20)]
    client, _ = holders(deal(make_windows(rows), [1, 1]), len(rows))
    assert (client >= 0).sum() == 72


@pytest.mark.slow
@given(window_rows(sessions=True), st.integers(1, 5), st.integers(0, 9))
def test_users_stay_whole(make_windows, rows, num_clients, seed):
    windows = make_windows(rows)
    users = np.unique(windows.user)
    assume(num_clients <= len(users))
    client, _ = holders(deal(windows, leaves_of(num_clients), seed, partition__deal="sorted"), len(rows))
    for index, user in enumerate(users):
        assert set(client[windows.user == user]) == {index % num_clients}


@given(window_rows(sessions=True), st.integers(1, 5), st.integers(0, 9))
def test_the_seed_deals_whole_users_evenly(make_windows, rows, num_clients, seed):
    windows = make_windows(rows)
    users = np.unique(windows.user)
    assume(num_clients <= len(users))
    client, _ = holders(deal(windows, leaves_of(num_clients), seed), len(rows))
    (of_user,) = zip(*[set(client[windows.user == user]) for user in users], strict=True)
    counts = np.bincount(of_user, minlength=num_clients)
    assert counts.max() - counts.min() <= 1


def test_who_stands_where_is_a_draw_unless_it_is_asked_not_to_be(make_windows):
    """Three users at three clients: 6 deals, each about as often (400 seeds: 67 ± 4 sd)."""
    rows = [(u, None, f"{c}/{s}", c) for u in "abc" for c in (0, 1) for s in range(3)]
    windows = make_windows(rows)

    def order(seed, **keys):
        client, _ = holders(deal(windows, [2, 1], seed, **keys), len(rows))
        return tuple(int(client[windows.user == user][0]) for user in "abc")

    drawn = [order(seed) for seed in range(400)]
    counts = [drawn.count(deal_) for deal_ in set(drawn)]
    assert len(counts) == 6
    assert min(counts) > 67 - 4 * 7.5
    assert {order(seed, partition__deal="sorted") for seed in range(5)} == {(0, 1, 2)}
    assert {order(seed, partition__deal="3") for seed in range(5)} == {order(3)}


@pytest.mark.parametrize("kind", ["user", "iid"])
def test_who_is_unseen_is_a_draw(make_windows, kind):
    rows = [(u, None, f"{c}/{s}", c) for u in "abcdef" for c in (0, 1) for s in range(6)]
    windows = make_windows(rows)
    keys = {"partition__unseen_clients": 1, "partition__kind": kind}
    unseen = set()
    for seed in range(40):
        dealt = deal(windows, [3, 3], seed, **keys)
        unseen.add(tuple(sorted(windows.user[dealt.clients[k][0][0]] for k in dealt.unseen_clients)))
    assert len(unseen) >= 12  # of 15 pairs


def test_users_of_a_file_stand_at_leaves_of_its_group(make_windows):
    users = ("a/1", "a/2", "a/3", "b/1", "b/2", "b/3", "b/4")
    rows = [(u, None, f"{c}/{s}", c) for u in users for c in (0, 1) for s in range(3)]
    windows = make_windows(rows)
    keys = {"scenario": "datasets", "data__path": "a.npz,b.npz", "hierarchy__num_servers": 3}
    for seed in range(5):
        dealt = deal(windows, [1, 1, 1], seed, scenario_sizes="1,2", **keys)
        for leaf, group in enumerate(dealt.scenario.groups):
            held = {user[0] for user in windows.user[np.concatenate(dealt.clients[leaf])]}
            assert held == {"ab"[group]}
    with pytest.raises(ConfigError, match="a has 3 users for 4 clients"):
        deal(windows, [2, 2, 2], 0, scenario_sizes="2,1", **keys)


@pytest.mark.parametrize(
    ("form", "change", "words"),
    [
        ({"x": np.zeros((12, 6), np.float32)}, {"span": 0.5}, r"in time .*, but x is \(12, 6\)"),
        ({"x": np.zeros((12, 6, 5, 4), np.uint8)}, {"span": 0.5}, r"in time .*, but x is \(12, 6, 5, 4\)"),
        (
            {"y": np.zeros((12, 2), np.float32)},
            {"labels": np.arange(3)},
            r"a class each, but y is float32",
        ),
        (
            {"y": np.zeros((12, 2), np.int64)},
            {"held": np.ones(3, bool)},
            r"a class each, but y is int64 \(12, 2\)",
        ),
        (
            {"x": np.zeros((12, 9), np.int64), "channels": ()},
            {"matrix": np.eye(0)},
            "of channels, but x are tokens",
        ),
    ],
)
def test_a_scenario_changes_only_what_windows_have(make_windows, form, change, words):
    """Of the user's own, too, of which nothing is known before; all clients' together, or one client's."""
    rows = [(u, None, f"{c}/{s}", c) for u in "ab" for c in (0, 1) for s in range(3)]
    windows = make_windows(rows)
    channels = tuple(f"c{n}" for n in range(6))
    windows = replace(windows, **{"x": np.zeros((12, 6, 5), np.float32), "channels": channels} | form)
    kind = SCENARIOS.given(lambda groups, channels, classes, rng: [Change(), Change(**change)])
    config = from_run_config({"scenario": kind, "hierarchy.num-servers": 2})
    try:
        for deals in (partition, lambda *given: own_partition(*given[:3], 1, 0)):
            with pytest.raises(ConfigError, match=words):
                deals(windows, config, [1, 1], 0)
    finally:
        SCENARIOS.forget(kind)
    if "span" in change:
        with pytest.raises(ConfigError, match="scenario rate needs windows in time"):
            deal(windows, [1, 1], scenario="rate", hierarchy__num_servers=2)


def test_devices_stay_whole(make_windows):
    rows = [(u, d, f"{c}/{s}", c) for u in "ab" for d in ("p", "q", "r") for c in (0, 1) for s in range(3)]
    windows = make_windows(rows)
    client, _ = holders(deal(windows, [2, 1], partition__kind="device", partition__deal="sorted"), len(rows))
    for index, device in enumerate("pqr"):
        assert set(client[windows.device == device]) == {index}


def test_users_are_cut_by_whole_sessions(make_windows):
    """Two users over five clients: user a over three, b over two; sessions stay whole."""
    rows = [(u, None, f"{c}/{s}", c) for u in "ab" for c in (0, 1) for s in range(9) for _ in range(2)]
    windows = make_windows(rows)
    client, _ = holders(
        deal(windows, [3, 2], partition__kind_args__split_users=True, partition__deal="sorted"), len(rows)
    )
    assert set(client[windows.user == "a"]) == {0, 1, 2}
    assert set(client[windows.user == "b"]) == {3, 4}
    for user in "ab":
        for session in np.unique(windows.session):
            assert len(set(client[(windows.user == user) & (windows.session == session)])) == 1
    assert [sum(map(len, parts)) for parts in dealt_sizes(windows)] == [12, 12, 12, 18, 18]


def dealt_sizes(windows):
    return deal(windows, [3, 2], partition__kind_args__split_users=True).clients


def test_a_cut_between_two_clients_drops_the_guard(make_windows):
    """40 windows over two clients with guard 2: client 0 gets 0..17, client 1 gets 20..39, nobody 18 and 19.

    Client 0's 18 windows: a fifth of 18 is 4 (rounded), so 18 − 4 − 4 − 2·2 = 6 train.
    """
    rows = [("a", None, None, c) for c in (0, 1) for _ in range(40)]
    dealt = deal(make_windows(rows), [1, 1], partition__kind_args__split_users=True, data__guard_windows=2)
    train, val, test = ([i for i in part if i < 40] for part in dealt.clients[0])
    assert (train, val, test) == (list(range(6)), list(range(8, 12)), list(range(14, 18)))
    client, _ = holders(dealt, len(rows))
    assert set(np.flatnonzero(client[:40] == 1)) == set(range(20, 40)) - {28, 29, 34, 35}


def test_devices_without_sessions_are_cut_between_their_users(make_windows):
    """Two devices of three users over four clients: of 60 windows of a class on a device, half go to each.

    That is user a and the first ten windows of b, and the rest; no window is dropped beyond the two guards
    in each of the 2 · 3 · 2 streams.
    """
    rows = [(u, d, None, c) for u in "abc" for d in "pq" for c in (0, 1) for _ in range(20)]
    windows = make_windows(rows)
    dealt = deal(windows, [2, 2], partition__kind="device", partition__kind_args__split_users=True)
    client, split = holders(dealt, len(rows))
    assert (client >= 0).sum() == len(rows) - 2 * 2 * 3 * 2
    assert [sorted(set(windows.user[client == k])) for k in range(4)] == [["a", "b"], ["b", "c"]] * 2
    assert [set(windows.device[client == k]) for k in range(4)] == [{"p"}, {"p"}, {"q"}, {"q"}]
    for k in range(4):
        assert set(split[client == k]) == set(SPLITS)


def test_sessions_of_equal_name_are_those_of_their_user(make_windows):
    """Users a and b both have sessions 0/0, 0/1, …: each is split alone, so some fall on different sides."""
    windows = make_windows(class_rows(num_users=2, sessions=10, size=1))
    _, split = holders(deal(windows, [2]), len(windows))
    of_a, of_b = split[windows.user == "a"], split[windows.user == "b"]
    assert np.bincount(of_a).tolist() == np.bincount(of_b).tolist() == [18, 6, 6]
    assert (of_a != of_b).any()


def class_rows(num_users=4, classes=3, sessions=10, size=6):
    return [
        (u, None, f"{c}/{s}", c)
        for u in "abcdefgh"[:num_users]
        for c in range(classes)
        for s in range(sessions)
        for _ in range(size)
    ]


@given(st.integers(1, 9), st.integers(0, 99))
def test_iid_is_even_in_every_split_and_class(make_windows, num_clients, seed):
    windows = make_windows(class_rows())
    client, split = holders(deal(windows, leaves_of(num_clients), seed, partition__kind="iid"), len(windows))
    for part in SPLITS:
        totals = np.bincount(client[split == part], minlength=num_clients)
        assert totals.max() - totals.min() <= 1
        for label in range(3):
            counts = np.bincount(client[(split == part) & (windows.y == label)], minlength=num_clients)
            assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("factor", [5.0, 2.0, 0.5])
def test_imbalance_gives_leaf_0_a_multiple(make_windows, factor):
    windows = make_windows(class_rows())
    dealt = deal(windows, [3, 3, 3], partition__kind="imbalance", partition__kind_args__imbalance=factor)
    client, _ = holders(dealt, len(windows))
    leaf = np.bincount(client // 3)
    assert leaf[0] == pytest.approx(factor * leaf[1], rel=0.1)
    assert leaf[1] == pytest.approx(leaf[2], rel=0.1)
    assert np.bincount(client)[:3] == pytest.approx(leaf[0] / 3, rel=0.1)


def skew(windows, dealt, groups):
    """The mean total variation distance of the groups' class shares from those of all windows."""
    client, _ = holders(dealt, len(windows))
    overall = np.bincount(windows.y, minlength=3) / len(windows)
    distances = [
        np.abs(
            np.bincount(windows.y[np.isin(client, g)], minlength=3) / np.isin(client, g).sum() - overall
        ).sum()
        / 2
        for g in groups
    ]
    return float(np.mean(distances))


def mean_skew(windows, groups, alpha_leaves, alpha_clients):
    """The skew of the groups under a Dirichlet partition over three leaves of three: ten seeds."""
    keys = {
        "partition__kind_args__alpha_leaves": alpha_leaves,
        "partition__kind_args__alpha_clients": alpha_clients,
    }
    dealt = [deal(windows, [3] * 3, seed, partition__kind="dirichlet", **keys) for seed in range(10)]
    return float(np.mean([skew(windows, d, groups) for d in dealt]))


def test_a_small_alpha_is_more_skewed_than_a_large_one(make_windows):
    windows = make_windows(class_rows(sessions=20))
    leaves, clients = [range(3 * s, 3 * s + 3) for s in range(3)], [[k] for k in range(9)]
    small, middle, large = (mean_skew(windows, leaves, a, 10.0) for a in (0.5, 5.0, 1000.0))
    assert small > 1.5 * middle > 3 * large
    assert large < 0.05
    small, middle, large = (mean_skew(windows, clients, 1000.0, a) for a in (0.5, 5.0, 1000.0))
    assert small > 1.5 * middle > 3 * large


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARTITIONS.names)
def test_a_seed_is_a_partition(kind):
    windows = synthetic_windows(num_users=4, seed=1)
    clients = [1, 2] if kind == "device" else [2, 2]
    named = {"partition__kind": kind}
    if kind == "classes":
        named["partition__kind_args__classes_per_client"] = 5
    first, again, other = (deal(windows, clients, seed, **named) for seed in (7, 7, 8))

    def flat(dealt):
        return [indices.tolist() for parts in dealt.clients for indices in parts]

    assert flat(first) == flat(again)
    assert flat(first) != flat(other)


def test_a_client_without_windows_is_refused(make_windows):
    rows = [("a", None, f"{c}/{s}", c) for c in (0, 1) for s in range(3)]
    with pytest.raises(ConfigError) as caught:
        deal(make_windows(rows), [3, 3], partition__kind="iid")
    assert str(caught.value) == (
        "partition.kind=iid must give every client training windows, but client 2 of 6 has none (3 other "
        'clients without windows of a split); use fewer clients or more data, or set data.split="blocks"'
    )
    with pytest.raises(ConfigError, match=r'use fewer clients or more data, or set data.split="blocks"'):
        deal(make_windows([("a", None, str(c), c) for c in (0, 1)]), [1])
    with pytest.raises(ConfigError, match=r"raise alpha-leaves and alpha-clients in partition.kind-args"):
        deal(make_windows(rows), [3, 3], partition__kind="dirichlet")


KINDS = ("user", "device", "iid", "dirichlet", "quantity", "classes", "imbalance", "two-level")


@pytest.mark.parametrize(
    ("kind", "split"),
    [*itertools.product(KINDS, ["auto", "session"]), ("user", "given"), ("device", "given")],
)
def test_a_client_without_windows_of_a_split_is_told_the_reason_and_what_to_set(make_windows, kind, split):
    """Whatever deals the windows: the split that keeps them together is named, with one that does not."""
    rows = [(user, f"phone-{user}", f"{user}/{c}", c) for user in "ab" for c in (0, 1) for _ in range(12)]
    windows = make_windows(rows)
    if split == "given":
        part = np.array(["train", "test"])[np.isin(windows.user, "b").astype(int)]
        windows = replace(windows, part=part)
    with pytest.raises(ConfigError) as caught:
        deal(windows, [2], partition__kind=kind, data__split=split)
    told = str(caught.value)
    said = "auto (here session)" if split == "auto" else split
    assert f"because data.split={said} " in told, told
    assert told.endswith('set data.split="blocks"')
    if kind in ("user", "device"):
        deal(windows, [2], partition__kind=kind, data__split="blocks")


def test_a_remedy_that_is_in_place_already_is_not_given(make_windows):
    """Where recordings are cut in time, or numbers of windows are even."""
    rows = [("a", None, f"{c}/{s}", c) for c in (0, 1) for s in range(2)]
    with pytest.raises(ConfigError) as caught:
        deal(
            make_windows(rows), [3, 3], data__split="blocks", partition__kind="quantity",
            partition__kind_args__sigma=0.0,
        )  # fmt: skip
    assert "data.split" not in str(caught.value)
    assert "sigma" not in str(caught.value)


def test_why_a_client_has_no_windows_is_asked_of_such_a_client_alone(make_windows, monkeypatch):
    """The answer looks at the windows of all clients: of each of 10,000, it took minutes."""
    monkeypatch.setattr("fedge.data.partition._reason", lambda *_: pytest.fail("asked of all clients"))
    deal(make_windows(class_rows()), [2, 2])


def test_many_windows_of_as_many_classes_are_refused_with_the_reason(make_windows):
    """Thirty windows each seem enough."""
    rows = [(user, None, None, c) for user in "ab" for c in range(30)]
    with pytest.raises(
        ConfigError,
        match=r"validation windows, but client 0 of 2 has none among 30 windows of 30 classes, each of which "
        r"is cut in time by itself if a user has at least 5 windows of it \(1 other client without windows "
        r"of a split\); use fewer clients or more data$",
    ):
        deal(make_windows(rows), [2], data__split="blocks")


@pytest.mark.parametrize("per_class", [3, 4])
@pytest.mark.parametrize("numbers", [False, True])
def test_classes_too_small_for_the_guard_are_refused_with_the_reason(make_windows, per_class, numbers):
    """Without windows dropped before each cut they could be cut."""
    rows = [(user, None, None, c) for user in "ab" for c in (0, 1) for _ in range(per_class)]
    windows = make_windows(rows)
    if numbers:
        rows = np.flatnonzero(windows.y == 0)
        windows = replace(windows.taken(rows), y=np.ones(len(rows), np.float32))
    with pytest.raises(ConfigError, match=r"at least 5.*, or set data.guard-windows=0 if windows do not"):
        deal(windows, [2], data__split="blocks")
    deal(windows, [2], data__split="blocks", data__guard_windows=0)


def test_the_number_of_clients_without_windows_is_said(make_windows):
    """Else a user with hundreds of small clients learns of one after another."""
    sizes = dict(zip("abcdef", (20, 2, 20, 1, 2, 20), strict=True))
    windows = make_windows([(user, None, None, at % 2) for user, n in sizes.items() for at in range(n)])
    with pytest.raises(ConfigError, match=r"of 6 has none .* \(2 other clients without windows of a split\)"):
        deal(windows, [6], data__split="blocks")


def test_what_the_file_does_not_name_cannot_be_dealt(make_windows):
    windows = make_windows([("a", None, None, c) for c in (0, 1) for _ in range(20)])
    with pytest.raises(ConfigError, match=r'^data\.split is "session", but .* set data\.split="blocks"$'):
        deal(windows, [1], data__split="session")
    with pytest.raises(
        ConfigError, match=r'^partition\.kind is "device", but .* set partition\.kind="user"$'
    ):
        deal(windows, [1], partition__kind="device")


def test_more_clients_than_users_are_refused(make_windows):
    windows = make_windows(class_rows(num_users=2))
    with pytest.raises(ConfigError) as caught:
        deal(windows, [3])
    assert str(caught.value) == (
        "partition.kind=user needs at least one user per client, but the data have 2 users for 3 clients; "
        "use at most that many (--clients 2), or set partition.kind-args.split-users=true"
    )


def test_blocks_can_be_asked_for_where_sessions_are_known(make_windows):
    windows = make_windows(class_rows(num_users=2))
    assert deal(windows, [2], data__split="blocks").split_kind == "blocks"
    assert deal(windows, [2]).split_kind == "session"


# --- real data ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["hhar", "motionsense"])
def real(request, shared_data):
    """(windows, number of users) of a real data set."""
    name, users = {
        "hhar": ("hhar-9users/hhar-9users-128x3.npz", 9),
        "motionsense": ("motionsense-24users/motionsense-24users-128x6.npz", 24),
    }[request.param]
    return load_windows(shared_data / name), users


def test_real_people_are_dealt_one_by_one_and_more_clients_are_refused(real):
    windows, users = real
    config = from_run_config({"partition.deal": "sorted"})
    for clients in (9, users):
        dealt = partition(windows, config, clients_per_leaf(config.hierarchy, clients), 42)
        client, split = holders(dealt, len(windows))
        of_user = clients_of_owners(np.arange(users), users, clients)
        for k in range(clients):
            mine = np.isin(windows.user, np.unique(windows.user)[of_user == k])
            assert set(np.unique(client[mine])) <= {-1, k}
        used = split[split >= 0]
        assert (used == TRAIN).mean() > 0.5
        assert 0.1 < (used == VAL).mean() < 0.25
        assert 0.1 < (used == TEST).mean() < 0.35
        if windows.session is not None:
            for session in np.unique(windows.session):
                assert len(set(split[windows.session == session])) == 1
    with pytest.raises(ConfigError, match=f"the data have {users} users for 30 clients"):
        partition(windows, config, [10, 10, 10], 42)


def test_real_people_can_be_cut_over_thirty_clients(real):
    windows, _ = real
    for seed in range(3):
        dealt = deal(windows, [10, 10, 10], seed, partition__kind_args__split_users=True)
        client, split = holders(dealt, len(windows))
        assert set(np.unique(client)) - {-1} == set(range(30))
        for k in range(30):
            assert len(np.unique(windows.user[client == k])) == 1
            # what a client is tested on, it was trained on
            assert set(windows.y[(client == k) & (split == TEST)]) <= set(
                windows.y[(client == k) & (split == TRAIN)]
            )


@pytest.mark.parametrize(
    ("dealt", "words"),
    [
        (lambda y: len(y) / 0, "failed: ZeroDivisionError: .*test_partition.py, line"),
        (lambda y: None, "must return a client 0..1 for each of"),
        (lambda y: np.full(len(y), 2), "must return a client 0..1 for each of"),
        (lambda y: np.zeros(len(y)), "must return a client 0..1 for each of"),
    ],
    ids=["fails", "nothing", "too many", "no whole numbers"],
)
def test_a_deal_of_the_users_must_name_a_client_for_every_window(make_windows, dealt, words):
    windows = make_windows([(user, None, f"{user}{n}", n % 2) for user in "ab" for n in range(12)], classes=2)
    kind = PARTITIONS.given(lambda windows, clients_per_leaf, rng: dealt(windows.y))
    try:
        with pytest.raises(ConfigError, match=rf"^partition\.kind .*{words}"):
            deal(windows, [1, 1], partition__kind=kind)
    finally:
        PARTITIONS.forget(kind)


@given(st.integers(1, 40), st.integers(0, 80))
def test_surplus_users_are_spread_over_all_leaves(clients, more):
    """All clients get as many users, to one; as many as there are for each are dealt in turn, as ever."""
    owners = np.arange(clients + more)
    client = clients_of_owners(owners, len(owners), clients)
    counts = np.bincount(client, minlength=clients)
    assert counts.max() - counts.min() <= 1
    even = len(owners) // clients * clients
    assert (client[:even] == owners[:even] % clients).all()
    for leaf in (2, 4):  # leaves of that many clients differ by one user at most
        if clients % leaf == 0:
            of_leaves = counts.reshape(-1, leaf).sum(axis=1)
            assert of_leaves.max() - of_leaves.min() <= 1


def test_thirty_users_on_six_leaves_of_four_are_five_each():
    counts = np.bincount(clients_of_owners(np.arange(30), 30, 24))
    assert counts.reshape(6, 4).tolist() == [[2, 1, 1, 1]] * 6


def dealt_by(function):
    """Windows dealt by code of the user's, and the windows."""
    windows = synthetic_windows(seed=2)
    before = windows.y.copy(), windows.x.copy()
    name = PARTITIONS.given(function)
    try:
        dealt = deal(windows, [2, 2], partition__kind=name)
    finally:
        PARTITIONS.forget(name)
        assert np.array_equal(windows.y, before[0])
        assert np.array_equal(windows.x, before[1])
    return holders(dealt, len(windows))[0]


def test_a_deal_of_one_s_own_is_that_of_the_stream():
    def by_rng(windows, clients_per_leaf, rng):
        assert rng.bit_generator.state == numpy_stream(0, Purpose.PARTITION).bit_generator.state
        return rng.integers(0, sum(clients_per_leaf), len(windows.y))

    assert np.array_equal(dealt_by(by_rng), dealt_by(by_rng))


def by_chance(windows, clients_per_leaf, rng):
    return np.random.default_rng().integers(0, sum(clients_per_leaf), len(windows.y))


def by_global_stream(windows, clients_per_leaf, rng):
    return np.random.randint(0, sum(clients_per_leaf), len(windows.y))  # noqa: NPY002


def by_memory(windows, clients_per_leaf, rng, turns=[]):  # noqa: B006
    turns.append(0)
    return (np.arange(len(windows.y)) + len(turns)) % sum(clients_per_leaf)


@pytest.mark.parametrize("function", [by_chance, by_global_stream, by_memory])
def test_a_deal_that_does_not_follow_from_the_seed_is_refused(function):
    with pytest.raises(ConfigError, match=r"partition\.kind .* must (give the same|follow from the seed)"):
        dealt_by(function)


@pytest.mark.parametrize("entry", ["x", "y", "user", "session"])
def test_a_deal_cannot_change_the_windows(entry):
    """The run would train on other data than its fingerprint says."""

    def changing(windows, clients_per_leaf, rng):
        getattr(windows, entry)[:] = getattr(windows, entry)[:1]
        return np.arange(len(windows.y)) % sum(clients_per_leaf)

    with pytest.raises(ConfigError, match="failed: ValueError: assignment destination is read-only"):
        dealt_by(changing)
