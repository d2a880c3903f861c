"""Users cut into devices: all is dealt once, to one user's devices; held-out windows stay together."""

import numpy as np
import pytest
from made_up import make_windows

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.data.devices import deal_devices

OFF = {"scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "hierarchy.num-servers": 1}


def windows_of(users=4, sessions=6, each=5, classes=2):
    rows = [
        (f"user-{user}", None, f"{label}-{session}", label)
        for user in range(users) for label in range(classes)
        for session in range(sessions) for _ in range(each)
    ]  # fmt: skip
    return make_windows(rows, classes=classes)


def dealt(windows, sizes, **changes):
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in changes.items()}
    config = from_run_config(
        {**OFF, "hierarchy.num-servers": len(sizes), "devices.pieces": 2, "partition.deal": "sorted", **given}
    )
    return deal_devices(windows, config, sizes, seed=1)


def test_every_training_window_is_at_one_device_of_its_user():
    windows = windows_of()
    found = dealt(windows, [12])
    train = np.concatenate([parts[0] for parts in found.clients])
    assert len(train) == len(np.unique(train))
    for number, (mine, val, test) in enumerate(found.clients):
        assert set(windows.user[mine]) == {f"user-{number // 3}"}
        assert (len(val) > 0) == (len(test) > 0) == (number % 3 == 0)
        assert len(mine) in (12, 13, 14, 15, 16)
    held_out = np.concatenate([rows for parts in found.clients for rows in parts[1:]])
    assert sorted([*train, *held_out]) == list(range(len(windows.y)))
    assert not set(windows.session[train]) & set(windows.session[held_out]) or found.split_kind == "session"


def test_a_device_has_stretches_of_time():
    windows = windows_of(users=1)
    one, two = (dealt(windows, [4], devices__pieces=pieces).clients for pieces in (1, 2))
    for found, breaks in ((one, 0), (two, 1)):
        train = np.sort(np.concatenate([parts[0] for parts in found]))
        places = [np.searchsorted(train, parts[0]) for parts in found]
        assert [int((np.diff(place) > 1).sum()) for place in places] == [breaks] * 4


def test_devices_share_windows_where_there_are_too_few():
    windows = windows_of(users=2)
    found = dealt(windows, [100], devices__least_windows=6)
    assert all(len(parts[0]) == 6 for parts in found.clients)
    assert {windows.user[parts[0]][0] for parts in found.clients[:50]} == {"user-0"}


def test_leaves_have_whole_users_and_unseen_clients_hold_others():
    windows = windows_of(users=6)
    found = dealt(windows, [6, 6], partition__unseen_clients=1)
    assert found.unseen_clients == {5, 11}
    seen = {
        windows.user[row] for c, parts in enumerate(found.clients) if c not in (5, 11) for row in parts[0]
    }
    for client in (5, 11):
        (user,) = set(windows.user[np.concatenate(found.clients[client])])
        assert user not in seen
    first = {windows.user[row] for parts in found.clients[:5] for row in parts[0]}
    second = {windows.user[row] for parts in found.clients[6:11] for row in parts[0]}
    assert len(first & second) <= 1


def test_a_scenario_takes_classes_from_devices():
    windows = windows_of(classes=4)
    found = dealt(windows, [6, 6], scenario="label-skew", devices__pieces=8)
    assert found.scenario is not None
    for client, parts in enumerate(found.clients):
        held = found.scenario.change_of(client).held
        assert held is None or held[windows.y[parts[0]]].all()


@pytest.mark.parametrize(
    ("sizes", "changes", "words"),
    [
        ([3], {}, "leaves 3 for 4 users"),
        ([6], {"partition__unseen_clients": 4}, "leave users to train"),
        ([400, 400], {"scenario": "label-skew", "devices__pieces": 1}, "leave every device training windows"),
    ],
)
def test_what_cannot_be_dealt_is_refused(sizes, changes, words):
    with pytest.raises(ConfigError, match=words):
        dealt(windows_of(classes=4), sizes, **changes)
