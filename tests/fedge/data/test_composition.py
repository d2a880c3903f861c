"""partition.csv against counts made by hand and against the partition that it describes."""

import csv

import numpy as np

from fedge.config.flat import from_run_config
from fedge.data.composition import class_counts, class_gap, holdings, widest_class_gap
from fedge.data.partition import Partition, partition
from fedge.data.scenario import Change, Scenario
from fedge.records.recorder import Recorder


def write_partition(folder, *what):
    """Write what the clients hold, as a run does."""
    with Recorder(folder) as recorder:
        recorder.write_partition(holdings(*what))


def rows(path):
    with path.open(newline="") as table:
        return list(csv.DictReader(table))


def test_counts_by_hand(tmp_path, make_windows):
    windows = make_windows(
        [("ann", "s3", "1", 0), ("ann", "s3", "1", 0), ("ann", "s4", "1", 1), ("bob", "s3", "2", 1)]
    )
    dealt = Partition(
        [(np.array([0, 1]), np.array([2]), np.array([], int)), (np.array([3]),) + (np.array([], int),) * 2],
        "blocks",
    )
    write_partition(tmp_path, windows, dealt, [1, 1])
    assert (tmp_path / "partition.csv").read_text().splitlines() == [
        "client,leaf,split,user,device,class,windows,unseen_client,group",
        "0,0,train,ann,s3,p,2,0,",
        "0,0,val,ann,s4,q,1,0,",
        "1,1,train,bob,s3,q,1,0,",
    ]


def test_unseen_clients_and_groups_by_hand(tmp_path, make_windows):
    """Leaf 1 is of group 1, where p is called q and q is called p; client 1 is an unseen client."""
    windows = make_windows([("ann", None, None, 0), ("bob", None, None, 0), ("bob", None, None, 1)], 2)
    nothing = (np.array([], int),) * 2
    dealt = Partition(
        [(np.array([0]), *nothing), (np.array([1, 2]), *nothing)],
        "blocks",
        frozenset([1]),
        Scenario("label-permutation", (0, 1), (Change(), Change(labels=np.array([1, 0]))), (1, 1)),
    )
    write_partition(tmp_path, windows, dealt, [1, 1])
    assert (tmp_path / "partition.csv").read_text().splitlines()[1:] == [
        "0,0,train,ann,,p,1,0,0",
        "1,1,train,bob,,p,1,1,1",
        "1,1,train,bob,,q,1,1,1",
    ]


def test_adds_up_to_the_partition(tmp_path):
    from hhar import synthetic_windows

    windows = synthetic_windows(num_users=4)
    sizes = [2, 1]
    dealt = partition(windows, from_run_config({"partition.kind": "iid"}), sizes, seed=1)
    write_partition(tmp_path, windows, dealt, sizes)
    table = rows(tmp_path / "partition.csv")
    for client, parts in enumerate(dealt.clients):
        for split, indices in zip(("train", "val", "test"), parts, strict=True):
            mine = [r for r in table if r["client"] == str(client) and r["split"] == split]
            assert sum(int(r["windows"]) for r in mine) == len(indices)
            assert {r["user"] for r in mine} == set(windows.user[indices])
    assert [r["leaf"] for r in table] == [str(int(r["client"]) // 2) for r in table]


def test_how_far_leaves_are_apart_in_their_classes_by_hand(make_windows):
    """Three leaves, all p; half p, half q; all q: on average half of each, from which two differ by a half.

    Of an unseen client nothing counts, nor what is held out.
    """
    windows = make_windows([("ann", None, None, label) for label in (0, 0, 0, 1, 1, 1)])
    nothing = (np.array([], int),) * 2
    leaves = [np.array([0, 1]), np.array([2, 3]), np.array([4])]
    dealt = Partition([(rows_, *nothing) for rows_ in leaves], "blocks")
    assert class_gap(holdings(windows, dealt, [1, 1, 1])) == 0.5
    unseen = Partition([(rows_, *nothing) for rows_ in leaves], "blocks", frozenset([0, 2]))
    assert class_gap(holdings(windows, unseen, [1, 1, 1])) == 0.0
    held_out = Partition([(leaves[1], leaves[0], leaves[0])], "blocks")
    assert class_gap(holdings(windows, held_out, [1])) == 0.0
    assert class_gap([]) == 0.0


def test_leaves_without_windows_are_not_apart():
    assert widest_class_gap(np.array([[3, 0], [0, 3], [0, 0]])) == 0.5
    assert widest_class_gap(np.zeros((2, 3), int)) == widest_class_gap(np.zeros((0, 0), int)) == 0.0


def test_training_windows_of_each_class_by_hand(make_windows):
    """Client 0 trains on one p and one q, client 1 on two q and holds out a p."""
    windows = make_windows([("ann", None, None, label) for label in (0, 1, 1, 1, 0)])
    nothing = np.array([], int)
    dealt = Partition(
        [(np.array([0, 1]), nothing, nothing), (np.array([2, 3]), np.array([4]), nothing)], "blocks"
    )
    held = list(holdings(windows, dealt, [1, 1]))
    names = windows.classes
    expected = [[1, 1, 0], [0, 2, 0], [0, 0, 0]]
    assert class_counts(held, [*names[:2], "never"], 3).tolist() == expected
    assert class_counts(held, names[:1], 3).shape == (3, 0)  # a class that is none
