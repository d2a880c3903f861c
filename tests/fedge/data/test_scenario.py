"""Planted changes by hand and by their properties, and where they act: on all windows of a leaf's clients."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import SCENARIOS
from fedge.data.partition import partition
from fedge.data.prepared import open_client, write_client_data
from fedge.data.scenario import Change, axes_apart_deg, make_scenario, random_rotation, triples_of
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import Windows

SIX = ("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y", "gyr_z")
PLANTED = [name for name in SCENARIOS.names[1:] if name != "datasets"]
SEEDS = st.integers(0, 2**32 - 1)


def scenario(kind, groups=2, sizes=(2, 2, 2, 2), seed=0, channels=SIX, classes=6):
    keys = {"scenario": kind, "scenario-groups": groups, "hierarchy.num-servers": len(sizes)}
    return make_scenario(from_run_config(keys), channels, classes, sizes, seed)


def windows_of(seed, n=5, samples=9):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 6, samples)).astype(np.float32), rng.integers(0, 6, n)


# --- the truth ----------------------------------------------------------------------------------------


@given(st.sampled_from(PLANTED), st.integers(2, 3), st.integers(3, 12), SEEDS)
def test_groups_are_balanced_and_follow_from_the_seed(kind, groups, leaves, seed):
    found = scenario(kind, groups, (2,) * leaves, seed)
    counts = np.bincount(found.groups, minlength=groups)
    assert len(found.groups) == leaves
    assert counts.max() - counts.min() <= 1
    again = scenario(kind, groups, (2,) * leaves, seed)
    assert again.describe() == found.describe()


def test_other_seeds_give_other_groups_and_changes():
    described = [scenario("rotate", seed=seed).describe() for seed in range(20)]
    assert len({tuple(d["groups"]) for d in described}) == 6  # all ways to choose 2 of 4
    assert len({str(d["changes"]) for d in described}) == 20


def test_nothing_is_planted_by_default():
    assert make_scenario(from_run_config({}), ("pressure",), 6, [3, 3, 3], 0) is None


@pytest.mark.parametrize("kind", PLANTED)
def test_group_0_is_left_alone_except_for_missing_classes(kind):
    x, y = windows_of(0)
    change = scenario(kind).changes[0]
    changed_x, changed_y = change.apply(x, y)
    assert changed_x is x
    assert changed_y is y
    assert (change.held is not None) == (kind == "label-skew")


def test_clients_get_the_change_of_their_leaf():
    """Sizes 1, 3, 2: client 0 is of leaf 0, clients 1 to 3 of leaf 1, 4 and 5 of leaf 2."""
    found = scenario("gain", groups=3, sizes=(1, 3, 2))
    for client, leaf in enumerate((0, 1, 1, 1, 2, 2)):
        assert found.change_of(client) is found.changes[found.groups[leaf]]


@given(st.integers(1, 5), st.integers(1, 5), SEEDS)
def test_groups_have_the_sizes_that_were_asked_for(first, second, seed):
    keys = {"scenario": "gain", "scenario-sizes": f"{first},{second}"}
    config = from_run_config({**keys, "hierarchy.num-servers": first + second})
    found = make_scenario(config, SIX, 6, [1] * (first + second), seed)
    assert np.bincount(found.groups).tolist() == [first, second]


def drifting(seed=0, leaves=6, **keys):
    named = {key.replace("_", "-"): value for key, value in keys.items()}
    config = from_run_config({"scenario": "gain", "hierarchy.num-servers": leaves, **named})
    return make_scenario(config, SIX, 6, [2] * leaves, seed)


def test_groups_begin_and_end():
    plain, found = drifting().groups, drifting(scenario_from=3, scenario_until=5)
    nobody = (0,) * 6
    assert [found.groups_in(r) for r in range(8)] == [nobody] * 3 + [plain] * 3 + [nobody] * 2
    assert found.groups == nobody
    assert found.describe()["later"] == [[3, list(plain)], [6, [0] * 6]]
    assert "later" not in drifting().describe()
    client = 2 * plain.index(1)
    assert found.change_of(client, 3) is found.changes[1]
    assert found.change_of(client) is found.change_of(client, 6) is found.changes[0]


@given(st.integers(2, 4), st.integers(1, 4), SEEDS)
def test_as_many_leaves_move_as_were_asked_for_and_no_group_is_emptied(groups, count, seed):
    found = drifting(seed, 8, scenario_groups=groups, scenario_moves=f"4:{count},9:1")
    eras = [groups_ for _, groups_ in found.eras]
    assert [first for first, _ in found.eras] == [1, 4, 9]
    assert all(len(set(era)) == groups for era in eras)
    moved = [sum(a != b for a, b in zip(one, two, strict=True)) for one, two in pairwise(eras)]
    assert moved == [count, 1]
    again = drifting(seed, 8, scenario_groups=groups, scenario_moves=f"4:{count},9:1")
    assert again.later == found.later


# --- the changes --------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.integers(2, 8), SEEDS)
def test_a_rotation_keeps_lengths_and_angles_of_every_sensor(groups, seed):
    x, y = windows_of(seed)
    found = scenario("rotate", groups, (1,) * 8, seed)
    acc, gyr = x[:, :3], x[:, 3:]
    for change in found.changes[1:]:
        turned, labels = change.apply(x, y)
        assert turned.dtype == np.float32
        assert (labels == y).all()
        for before, after in ((acc, turned[:, :3]), (gyr, turned[:, 3:])):
            np.testing.assert_allclose(
                np.linalg.norm(after, axis=1), np.linalg.norm(before, axis=1), atol=1e-5
            )
        np.testing.assert_allclose((turned[:, :3] * turned[:, 3:]).sum(1), (acc * gyr).sum(1), atol=1e-4)
        block = change.matrix[:3, :3].astype(np.float64)
        np.testing.assert_allclose(block @ block.T, np.eye(3), atol=1e-6)
        assert np.linalg.det(block) == pytest.approx(1, abs=1e-6)
        assert (change.matrix[3:, 3:] == change.matrix[:3, :3]).all()
        assert (change.matrix[3:, :3] == 0).all()


@given(st.integers(2, 3), SEEDS)
def test_every_axis_is_at_least_60_degrees_from_its_line_in_another_group(groups, seed):
    found = scenario("rotate", groups, (1,) * 8, seed)
    rotations = [np.eye(3)] + [c.matrix[:3, :3].astype(np.float64) for c in found.changes[1:]]
    for i, one in enumerate(rotations):
        for other in rotations[:i]:
            assert axes_apart_deg(one, other) > 59.99
            relative = one @ other.T  # readings of one group ← readings of the other
            assert np.abs(np.diag(relative)).max() < 0.501


def test_many_rotations_are_as_far_apart_as_draws_allow():
    found = scenario("rotate", 8, (1,) * 8)
    rotations = [np.eye(3)] + [c.matrix[:3, :3].astype(np.float64) for c in found.changes[1:]]
    apart = [axes_apart_deg(one, other) for i, one in enumerate(rotations) for other in rotations[:i]]
    assert 25 < min(apart) < 60


def test_random_rotations_are_uniform():
    """The angle θ of a uniform rotation has density (1 − cos θ)/π on 0..π: mean π/2 + 2/π. Columns mean 0."""
    rng = np.random.default_rng(0)
    drawn = np.array([random_rotation(rng) for _ in range(4000)])
    angles = np.arccos((np.trace(drawn, axis1=1, axis2=2) - 1) / 2)
    assert angles.mean() == pytest.approx(np.pi / 2 + 2 / np.pi, abs=0.04)
    assert np.abs(drawn.mean(axis=0)).max() < 0.05


def test_the_distance_of_axes_by_hand():
    """A turn about z leaves z where it is. x → y → z → x moves every axis to another: 90°.

    Half of that, 60° about (1, 1, 1), leaves 2/3 of every axis on its line: arccos(2/3) = 48.19°.
    """
    about_z = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1.0]])
    cycle = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0.0]])
    half = np.array([[2, -1, 2], [2, 2, -1], [-1, 2, 2]]) / 3
    assert axes_apart_deg(np.eye(3), about_z) == pytest.approx(0, abs=1e-6)
    assert axes_apart_deg(np.eye(3), cycle) == pytest.approx(90)
    assert axes_apart_deg(half, np.eye(3)) == pytest.approx(np.degrees(np.arccos(2 / 3)))


@given(SEEDS)
def test_flips_change_signs_only_and_undo_themselves(seed):
    x, y = windows_of(seed)
    found = scenario("flip", 8, (1,) * 8, seed)
    signs = [tuple(np.sign(c.apply(np.ones((1, 6, 1), np.float32), y)[0].ravel())) for c in found.changes]
    assert len(set(signs)) == 8
    for pattern, change in zip(signs, found.changes, strict=True):
        assert pattern[:3] == pattern[3:]
        flipped, _ = change.apply(x, y)
        assert (np.abs(flipped) == np.abs(x)).all()
        assert (change.apply(flipped, y)[0] == x).all()
    assert [sum(s < 0 for s in pattern[:3]) for pattern in signs[:4]] == [0, 2, 2, 2]


def test_gains_by_hand():
    """Three groups: 1, 2 and 4; the sample 1.5 becomes 1.5, 3 and 6."""
    found = scenario("gain", 3)
    x = np.full((1, 6, 1), 1.5, np.float32)
    assert [c.apply(x, np.array([0]))[0].max() for c in found.changes] == [1.5, 3.0, 6.0]


def test_rates_by_hand():
    """Group 1 of 2 shows the middle half of a window: samples 0, 1, 2, 3, 4 become those at 1, 1.5 … 3."""
    x = np.array([[[0, 1, 4, 9, 16]]], np.float32)
    change = scenario("rate", 2).changes[1]
    assert change.apply(x, np.array([0]))[0].tolist() == [[[1.0, 2.5, 4.0, 6.5, 9.0]]]
    spans = [c.span for c in scenario("rate", 3).changes]
    assert spans == [1.0, pytest.approx(0.5**0.5), 0.5]
    one = np.ones((2, 1, 1), np.float32)
    assert (change.apply(one, np.array([0, 1]))[0] == one).all()


@given(st.integers(2, 6), st.integers(6, 9), SEEDS)
def test_no_class_means_the_same_in_two_groups(groups, classes, seed):
    found = scenario("label-permutation", groups, (1,) * 6, seed, classes=classes)
    y = np.arange(classes)
    x = np.zeros((classes, 6, 1), np.float32)
    named = np.array([change.apply(x, y)[1] for change in found.changes])
    for labels in named:
        assert sorted(labels) == list(y)  # so it can be undone
        assert (np.argsort(labels)[labels] == y).all()
    for column in named.T:
        assert len(set(column)) == groups


@given(st.integers(2, 4), st.integers(4, 12), SEEDS)
def test_every_class_is_held_and_groups_differ(groups, classes, seed):
    found = scenario("label-skew", groups, (1,) * 6, seed, classes=classes)
    held = np.array([change.held for change in found.changes])
    assert (held.sum(axis=1) >= 2).all()
    assert held.any(axis=0).all()
    assert len({row.tobytes() for row in held}) == groups
    if 2 * groups <= classes:
        assert (held.sum(axis=0) == 1).all()


# --- refused ------------------------------------------------------------------------------------------


def test_sensors_are_found_by_name():
    assert triples_of(("Gyr_Z", "Acc_X", "Acc_Z", "Gyr_X", "Acc_Y", "Gyr_Y"), "rotate") == [
        (3, 5, 0), (1, 4, 2)
    ]  # fmt: skip
    assert triples_of(tuple("xyz"), "rotate") == [(0, 1, 2)]


@pytest.mark.parametrize("kind", ["rotate", "flip"])
@pytest.mark.parametrize("channels", [("acc_x", "acc_y"), ("acc_x", "acc_y", "acc_z", "ecg"), tuple("abc")])
def test_axes_that_are_not_there_are_refused(kind, channels):
    with pytest.raises(
        ConfigError, match=f"^scenario {kind} needs sensors of three axes, .*acc_z, but the data"
    ):
        scenario(kind, channels=channels)


@pytest.mark.parametrize(
    ("kind", "groups", "rule"),
    [
        ("flip", 9, "at most 8 for scenario flip"),
        ("label-permutation", 7, "at most the number of classes"),
        ("label-skew", 7, "leave every group other classes"),
    ],
)
def test_more_groups_than_can_differ_are_refused(kind, groups, rule):
    with pytest.raises(ConfigError, match=f"^scenario-groups must .*{rule}.*; lower it$"):
        scenario(kind, groups, (1,) * 9)


def test_two_classes_cannot_be_skewed_over_two_groups():
    with pytest.raises(ConfigError, match="is 2 for 2 classes"):
        scenario("label-skew", 2, classes=2)


def test_more_groups_than_leaves_are_refused():
    with pytest.raises(
        ConfigError, match=r"^scenario-groups must be at most hierarchy.num-servers.* 4 for 3;"
    ):
        from_run_config({"scenario": "gain", "scenario-groups": 4})
    assert from_run_config({"scenario-groups": 4}).scenario == "none"


# --- on real partitions -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def windows():
    return synthetic_windows(num_users=8, sensors="acc+gyro")


def dealt(windows, kind, unseen_clients=1, seed=3, **keys):
    config = {
        "scenario": kind,
        "hierarchy.num-servers": 2,
        "partition.unseen-clients": unseen_clients,
        **keys,
    }
    return partition(windows, from_run_config(config), [4, 4], seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLANTED)
def test_every_window_of_a_leaf_is_changed_unseen_clients_included(windows, kind, tmp_path):
    """The written windows are those that the group's change makes of the original ones, split by split."""
    found = dealt(windows, kind)
    write_client_data(tmp_path / "data", windows, found, normalize=False)
    for k, parts in enumerate(found.clients):
        client = open_client(str(tmp_path / "data"), k)
        change = found.scenario.changes[found.scenario.groups[k // 4]]
        for (x, y), indices in zip((client.train, client.val, client.test), parts, strict=True):
            expected_x, expected_y = change.apply(windows.x[indices], windows.y[indices])
            np.testing.assert_allclose(x, expected_x, rtol=1e-5, atol=1e-5)
            assert (y == expected_y).all()


def test_a_scenario_changes_nobodys_windows_but_the_groups(windows):
    """The deal of windows to clients and splits does not depend on the scenario."""
    plain, turned = (dealt(windows, kind) for kind in ("none", "rotate"))
    for parts, same in zip(plain.clients, turned.clients, strict=True):
        assert all((a == b).all() for a, b in zip(parts, same, strict=True))


@pytest.mark.parametrize("kind", ["user", "iid"])
def test_clients_keep_all_windows_of_the_classes_of_their_group(windows, kind):
    """And none of others. Users are split anew without them; dealt windows stay where they were."""
    plain, skewed = (dealt(windows, s, **{"partition.kind": kind}) for s in ("none", "label-skew"))
    for k, parts in enumerate(plain.clients):
        held = skewed.scenario.change_of(k).held
        kept = [part[held[windows.y[part]]] for part in parts]
        assert sorted(np.concatenate(skewed.clients[k])) == sorted(np.concatenate(kept))
        if kind == "iid":
            assert all((a == b).all() for a, b in zip(kept, skewed.clients[k], strict=True))


def test_two_sessions_of_a_class_are_enough_for_a_skewed_client():
    """Split before other classes are dropped, a class of two sessions would have nothing to validate on."""
    rows = [(u, label, f"{label}-{s}") for u in "ab" for label in range(4) for s in (0, 1) for _ in range(5)]
    user, y, session = (np.array(column) for column in zip(*rows, strict=True))
    windows = Windows(np.zeros((len(y), 1, 4), np.float32), y, user, None, session, tuple("pqrs"), ("c",))
    config = from_run_config({"scenario": "label-skew", "hierarchy.num-servers": 2})
    assert all(len(part) for parts in partition(windows, config, [1, 1], 0).clients for part in parts)


def test_statistics_come_from_the_changed_training_windows(windows, tmp_path):
    write_client_data(tmp_path / "data", windows, dealt(windows, "gain"), normalize=True)
    known = [open_client(str(tmp_path / "data"), k).train[0] for k in (0, 1, 2, 4, 5, 6)]
    train = np.concatenate(known).astype(np.float64)
    np.testing.assert_allclose(train.mean(axis=(0, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(train.std(axis=(0, 2)), 1, atol=1e-4)


def test_a_client_without_the_groups_classes_is_refused():
    """User a has windows of class p only, user b of all four; the group of leaf 0 must hold p."""
    rows = [
        (user, label) for user in "ab" for label in ((0,) if user == "a" else (0, 1, 2, 3)) for _ in range(9)
    ]
    user, y = zip(*rows, strict=True)
    windows = Windows(
        np.zeros((len(y), 1, 4), np.float32), np.array(y), np.array(user), None, None, tuple("pqrs"), ("c",)
    )
    config = from_run_config(
        {"scenario": "label-skew", "hierarchy.num-servers": 2, "partition.deal": "sorted"}
    )
    walks = [make_scenario(config, ("c",), 4, [1, 1], seed).change_of(0).held[0] for seed in range(8)]
    assert len(set(walks)) == 2
    partition(windows, config, [1, 1], walks.index(True))
    with pytest.raises(
        ConfigError,
        match=r"^scenario label-skew must leave every client training windows, but client 0 has none",
    ):
        partition(windows, config, [1, 1], walks.index(False))


def test_describes_itself_as_json():
    assert Change().describe() == {}
    assert Change(span=0.5, labels=np.array([1, 0])).describe() == {"span": 0.5, "labels": [1, 0]}


def test_windows_change_with_their_groups_and_nothing_else_does(tmp_path):
    """No gain before round 3 and after round 4; statistics are those of round 1."""
    windows = synthetic_windows(4, bouts=5, windows_per_bout=1, devices=("nexus4_1",), rate_hz=10)
    keys = {"scenario": "gain", "hierarchy.num-servers": 2, "scenario-from": 3, "scenario-until": 4}
    dealt_ = partition(windows, from_run_config(keys), [2, 2], 0)
    write_client_data(tmp_path / "data", windows, dealt_, normalize=False)
    plain = partition(windows, from_run_config({"hierarchy.num-servers": 2}), [2, 2], 0)
    write_client_data(tmp_path / "plain", windows, plain, normalize=False)
    for client in range(4):
        gain = dealt_.scenario.change_of(client, 3).matrix
        factor = 1.0 if gain is None else float(gain[0, 0])
        for global_round, expected in ((1, 1.0), (2, 1.0), (3, factor), (4, factor), (5, 1.0)):
            now = open_client(str(tmp_path / "data"), client, global_round)
            before = open_client(str(tmp_path / "plain"), client)
            for (x, y), (a, b) in ((now.train, before.train), (now.val, before.val), (now.test, before.test)):
                np.testing.assert_allclose(x, expected * a, rtol=1e-5)
                assert (y == b).all()
    write_client_data(tmp_path / "scaled", windows, dealt_, normalize=True)
    first = np.concatenate([open_client(str(tmp_path / "scaled"), k).train[0] for k in range(4)])
    np.testing.assert_allclose(first.astype(float).std(axis=(0, 2)), 1, rtol=1e-3)


# --- of the user's ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (None, "must give group 1 a fedge.data.scenario.Change, but gave None"),
        (Change(matrix=np.eye(2)), r"must give group 1 a matrix of shape \(6, 6\), but gave"),
        (Change(labels=np.zeros(3, int)), r"must give group 1 a labels of shape \(6,\), but gave"),
        (Change(held=np.ones(3, bool)), r"must give group 1 a held of shape \(6,\), but gave"),
        (Change(labels=np.full(6, 6)), r"must give group 1 labels 0\.\.5, but gave"),
    ],
    ids=["no change", "matrix", "labels", "held", "no class"],
)
def test_a_scenario_of_the_users_must_fit_the_data(second, words):
    kind = SCENARIOS.given(lambda groups, channels, classes, rng: [Change(), second])
    try:
        with pytest.raises(ConfigError, match=words):
            scenario(kind)
    finally:
        SCENARIOS.forget(kind)


@pytest.mark.parametrize("gave", [None, [Change()], "ab"], ids=["nothing", "too few", "text"])
def test_a_scenario_of_the_users_must_give_every_group_a_change(gave):
    kind = SCENARIOS.given(lambda *_: gave)
    try:
        with pytest.raises(ConfigError, match=r"must give (2 groups a Change each|group 0 a fedge)"):
            scenario(kind)
    finally:
        SCENARIOS.forget(kind)
