"""Windows that clients own: whichever way a node names them, they are what the server would have dealt."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from made_up import make_windows

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.topology import clients_per_leaf
from fedge.data.own_windows import (
    FOLDER,
    OWN,
    SHARE,
    WindowsReport,
    client_data,
    names_own_data,
    own_data,
    partition_of_node,
    share_of,
    write_share,
)
from fedge.data.partition import partition
from fedge.data.prepared import load_source, open_client, write_client_data
from fedge.data.scaling import Scale, scale_of
from hhar.windows.window_file import save_windows

SEED, CLIENTS = 5, 6
SCENARIOS = {
    "none": {},
    "gain": {"scenario": "gain", "hierarchy.num-servers": 2},
    "moves": {"scenario": "gain", "hierarchy.num-servers": 3, "scenario-from": 3, "scenario-moves": "5:1"},
    "labels": {"scenario": "label-permutation", "hierarchy.num-servers": 2},
    "skew": {"scenario": "label-skew", "hierarchy.num-servers": 2, "data.split": "blocks"},
    "unseen": {"partition.unseen-clients": 1, "hierarchy.num-servers": 2},
    "images": {},
}


@pytest.fixture(scope="module")
def window_file(tmp_path_factory):
    """The path of windows of six users, four classes, of two samples in two channels; or images."""

    def made(images=False):
        rows = [
            (user, None, f"{label}-{session}", label)
            for user in "abcdef"
            for label in range(4)
            for session in range(5)
            for _ in range(3)
        ]
        windows = make_windows(rows, classes=4)
        draw = np.random.default_rng(2)
        if images:
            x = draw.integers(0, 256, (len(rows), 1, 4, 4), dtype=np.uint8)
            windows = replace(windows, x=x)
        else:
            x = draw.normal(size=(len(rows), 2, 8)).astype(np.float32) + windows.y[:, None, None]
            windows = replace(windows, x=x.astype(np.float32), channels=("u", "v"))
        return save_windows(tmp_path_factory.mktemp("windows") / "six.npz", windows)

    return made


def server_side(tmp_path, config):
    """Deal of the windows, and the folder into which a server that has all of them puts them."""
    windows, _ = load_source(config, CLIENTS)
    dealt = partition(windows, config, clients_per_leaf(config.hierarchy, CLIENTS), SEED)
    shape = write_client_data(tmp_path / "server", windows, dealt, config.data.normalize)
    return windows, dealt, shape


@pytest.mark.parametrize("name", SCENARIOS)
def test_clients_have_the_bits_that_a_server_deals(tmp_path, window_file, name):
    """From a data set of everybody's, and from folders that were dealt before; sums give the same scale."""
    path = str(window_file(images=name == "images"))
    config = from_run_config({"data.path": path, **SCENARIOS[name]})
    windows, dealt, shape = server_side(tmp_path, config)
    owned = []
    for client in range(CLIENTS):
        node = {"partition-id": client, "num-partitions": CLIENTS}
        elsewhere = replace(config, data=replace(config.data, path="nowhere"))
        mine = own_data({**node, SHARE: path}, elsewhere, SEED)
        folder = tmp_path / f"client-{client}"
        write_share(folder, share_of(windows, dealt, client, "six.npz", False))
        given = own_data({**node, FOLDER: str(folder)}, elsewhere, SEED)
        assert given.report == mine.report
        owned.append((mine, given))
    known = [mine for client, (mine, _) in enumerate(owned) if client not in dealt.unseen_clients]
    scale = scale_of([own.report.sums for own in known])
    assert (scale.mean, scale.std) == (shape.mean, shape.std)
    for client, both in enumerate(owned):
        for global_round in (1, 2, 3, 5):
            theirs = open_client(str(tmp_path / "server"), client, global_round)
            for own in both:
                ours = client_data(own, scale, global_round)
                for split in ("train", "val", "test"):
                    for one, other in zip(getattr(ours, split), getattr(theirs, split), strict=True):
                        assert one.tobytes() == other.tobytes()
                assert ours.classes == theirs.classes == 4


def test_what_is_told_are_counts_and_sums(tmp_path, window_file):
    config = from_run_config({"data.path": str(window_file())})
    windows, dealt, _ = server_side(tmp_path, config)
    told = share_of(windows, dealt, 2, "six.npz", False).report
    for split, rows in zip(("train", "val", "test"), dealt.clients[2], strict=True):
        assert told.counts[split] == tuple(np.bincount(windows.y[rows], minlength=4))
        assert told.windows(split) == len(rows)
    assert (told.classes, told.channels, told.input_shape) == (("p", "q", "r", "s"), ("u", "v"), (2, 8))
    assert told.dtype == "float32"
    assert len(told.to_text()) < 1000  # nothing of the size of the windows
    assert WindowsReport.of_text(told.to_text()) == told


def changed(told, **changes):
    return json.dumps({**json.loads(told.to_text()), **changes})


def test_what_is_no_account_of_windows_is_refused(tmp_path, window_file):
    config = from_run_config({"data.path": str(window_file())})
    windows, dealt, _ = server_side(tmp_path, config)
    told = share_of(windows, dealt, 0, "six.npz", False).report
    sums = asdict(told.sums)
    for text in (
        "[]", "no JSON", "{}",
        changed(told, counts={"train": [1], "val": [1], "test": [1]}),
        changed(told, counts={split: [-1, 1, 1, 1] for split in ("train", "val", "test")}),
        changed(told, counts={split: [0.5, 1, 1, 1] for split in ("train", "val", "test")}),
        changed(told, sums={**sums, "mean": [0.0]}),
        changed(told, sums={**sums, "mean": ["0.0", 0.0]}), changed(told, sums={**sums, "mean": "12"}),
        changed(told, sums={**sums, "mean": [10**400, 0.0]}),
        changed(told, sums={**sums, "count": 10**400}),
        changed(told, about=3), changed(told, input_shape="ab"), "[" * 100_000,
        changed(told, source="\x1b[2J"), changed(told, classes=["p", "q", "r", "a\nb"]),
        changed(told, about={"\x07": ""}),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            WindowsReport.of_text(text)


def test_a_file_of_ones_own_is_split_alone(tmp_path):
    """All windows are the client's; sessions stay whole; another seed or client shuffles others."""
    rows = [
        ("me", None, f"{label}-{session}", label) for label in (0, 1) for session in range(9) for _ in "ab"
    ]
    windows = make_windows(rows, classes=2)
    path = str(save_windows(tmp_path / "mine.npz", windows))
    config = from_run_config({"data.normalize": True})
    node = {"partition-id": 4, "num-partitions": CLIENTS, OWN: path}
    own = own_data(node, config, SEED)
    assert own.report.source == "mine.npz"
    assert own.report.split_kind == "session"
    assert sum(own.report.windows(split) for split in ("train", "val", "test")) == len(rows)
    assert own_data({**node, "partition-id": 4}, config, SEED).report == own.report
    others = [own_data({**node, "partition-id": 3}, config, SEED), own_data(node, config, SEED + 1)]
    assert len({own.report.fingerprint, *(other.report.fingerprint for other in others)}) == 3
    data = client_data(own, Scale((0.0,), (2.0,)), 1)
    held = np.concatenate([data.train[0], data.val[0], data.test[0]])
    assert sorted((held * 2).ravel().tolist()) == list(range(len(rows)))
    sessions = {
        split: {rows[int(value * 2)][2] for value in getattr(data, split)[0].ravel()}
        for split in ("train", "val", "test")
    }
    assert not sessions["train"] & (sessions["val"] | sessions["test"])


@pytest.mark.parametrize("key", [OWN, SHARE])
def test_a_file_written_anew_is_read_anew(tmp_path, key):
    """A node's process with a GPU stays for the next run, whose windows may be others."""
    rows = [
        (u, None, f"{label}-{n}", label) for u in "ab" for label in (0, 1) for n in range(9) for _ in "ab"
    ]
    windows, path = make_windows(rows, classes=2), str(tmp_path / "mine.npz")
    node = {"partition-id": 0, "num-partitions": 2, key: path}
    config = from_run_config({"hierarchy.num-servers": 1})
    fingerprints = []
    for x in (windows.x, windows.x + 1):
        save_windows(path, replace(windows, x=x))
        own = [own_data(node, config, SEED, is_first=True) for _ in "12"]
        assert own[0] is own[1]
        fingerprints.append(own[0].report.fingerprint)
    assert fingerprints[0] != fingerprints[1]


def test_a_file_without_the_classes_of_its_group_is_refused(tmp_path):
    """In one line, as every client without windows."""
    rows = [("me", None, f"{label}-{n}", label) for label in (0, 1) for n in range(9) for _ in "ab"]
    windows = replace(make_windows(rows, classes=2), classes=("a", "b", "c", "d"))
    path = str(save_windows(tmp_path / "mine.npz", windows))
    refused = []
    for seed in range(6):
        config = from_run_config({"hierarchy.num-servers": 2, "scenario": "label-skew"})
        try:
            own_data({"partition-id": 0, "num-partitions": 2, OWN: path}, config, seed)
        except ConfigError as error:
            refused.append(str(error))
    assert refused
    assert all("of c, d it has none" in words for words in refused)


def test_scaled_windows_cannot_be_written(tmp_path, window_file):
    config = from_run_config({"data.path": str(window_file())})
    windows, dealt, _ = server_side(tmp_path, config)
    own = share_of(windows, dealt, 0, "six.npz", False)
    data = client_data(own, Scale((0.0, 0.0), (1.0, 1.0)), 1)
    assert not data.train[0].flags.writeable
    assert client_data(own, Scale((0.0, 0.0), (1.0, 1.0)), 2).train[0].base is data.train[0].base  # kept


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({}, "must hold partition-id and num-partitions, .* but holds None and None"),
        ({"partition-id": 9, "num-partitions": 9}, "but holds 9 and 9"),
        ({"partition-id": "0", "num-partitions": 9}, "but holds '0' and 9|but holds \"0\" and 9"),
        ({"partition-id": 1, "num-partitions": 9}, "of partition 1 has none of them"),
        (
            {"partition-id": 1, "num-partitions": 9, SHARE: "a", OWN: "b"},
            "of partition 1 has own-data and data;",
        ),
        (
            {"partition-id": 1, "num-partitions": 9, SHARE: "gone.npz"},
            "^partition 1, data=.*gone.npz.* exist",
        ),
        (
            {"partition-id": 1, "num-partitions": 9, FOLDER: "gone"},
            "^partition 1, data-folder=.*must be a folder that fedge deal wrote",
        ),
    ],
)
def test_a_node_that_is_not_set_up_is_refused_by_name(node, message):
    assert names_own_data(node) == any(key in node for key in (SHARE, OWN, FOLDER))
    with pytest.raises(ConfigError, match=message) as caught:
        own_data({**node}, from_run_config({}), SEED)
    assert "\n" not in str(caught.value)


def test_where_a_node_stands():
    assert partition_of_node({"partition-id": 3, "num-partitions": 9, "more": "x"}) == (3, 9)
