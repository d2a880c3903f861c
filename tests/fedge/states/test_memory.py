"""Versions of clients' memories: which stay, and what is said of one that is gone."""

import numpy as np
import pytest

from fedge.states.files import StateFileError
from fedge.states.memory import (
    KeptVersion,
    MemoryKeeper,
    RemoteMemories,
    forget_memories,
    path_of,
    read_memory,
    write_memory,
)


def state(number):
    return {"v": np.full(3, float(number)), "n": np.array(number)}


def test_a_version_is_read_as_it_was_written(tmp_path):
    kept = write_memory(tmp_path, 4, 7, state(1))
    found = read_memory(tmp_path, 4, kept)
    assert kept.leaf_round == 7
    assert {name: array.tolist() for name, array in found.items()} == {"v": [1.0] * 3, "n": 1}


def test_a_version_that_is_gone_or_changed_is_an_error(tmp_path):
    kept = write_memory(tmp_path, 0, 1, state(1))
    write_memory(tmp_path, 0, 1, state(2))
    with pytest.raises(StateFileError, match="damaged"):
        read_memory(tmp_path, 0, kept)
    path_of(tmp_path, 0, 1).unlink()
    with pytest.raises(StateFileError, match="round-000001"):
        read_memory(tmp_path, 0, kept)


def test_versions_go_when_neither_a_round_nor_a_checkpoint_needs_them(tmp_path):
    keeper, there = (
        MemoryKeeper(tmp_path, checkpoints=1),
        lambda: sorted(p.stem for p in tmp_path.rglob("*.saf*")),
    )
    keeper.begin({})
    for leaf_round in (1, 2, 3, 4, 5):
        counted = {0: write_memory(tmp_path, 0, leaf_round, state(leaf_round))}
        keeper.pin(counted)
        keeper.sweep(counted)
    assert there() == [
        "round-000004",
        "round-000005",
    ]  # one checkpoint, and the one before while it is written


def test_rounds_that_were_undone_go_and_what_counted_must_be_there(tmp_path):
    versions = {n: write_memory(tmp_path, 0, n, state(n)) for n in (1, 2, 3)}
    MemoryKeeper(tmp_path, 1).begin({0: versions[2]})
    assert not path_of(tmp_path, 0, 3).exists()
    path_of(tmp_path, 0, 2).unlink()
    with pytest.raises(StateFileError):
        MemoryKeeper(tmp_path, 1).begin({0: versions[2]})


def test_what_was_undone_goes_client_by_client(tmp_path):
    """Each client counts its own versions: client 0 has five, of client 1's three only the first counted."""
    for client, versions in ((0, 5), (1, 3), (2, 1)):
        for leaf_round in range(1, versions + 1):
            write_memory(tmp_path, client, leaf_round, state(leaf_round))
    counted = {
        client: write_memory(tmp_path, client, leaf_round, state(leaf_round))
        for client, leaf_round in ((0, 5), (1, 1))
    }
    MemoryKeeper(tmp_path, 1).begin(counted)
    there = {(path.parent.name, path.stem) for path in tmp_path.rglob("*.saf*")}
    assert there == {
        *(("client-000000", f"round-{leaf_round:06d}") for leaf_round in range(1, 6)),
        ("client-000001", "round-000001"),
    }


def test_further_versions_stay_while_they_are_named(tmp_path):
    """Of a job under way: what it reads is pinned with the checkpoint, what it makes stays in this sweep."""
    keeper = MemoryKeeper(tmp_path, checkpoints=0)
    keeper.begin({})
    kept = {leaf_round: write_memory(tmp_path, 0, leaf_round, state(leaf_round)) for leaf_round in (1, 2, 3)}
    assert keeper.pin({0: kept[2]}, [(0, 1)]) == [path_of(tmp_path, 0, 1), path_of(tmp_path, 0, 2)]
    keeper.sweep({0: kept[2]}, [(0, 3)])
    assert [path_of(tmp_path, 0, n).exists() for n in (1, 2, 3)] == [True, True, True]
    keeper.pin({0: kept[2]})
    keeper.sweep({0: kept[2]})
    assert [path_of(tmp_path, 0, n).exists() for n in (1, 2, 3)] == [False, True, False]


def test_elsewhere_the_server_names_the_versions_that_checkpoints_need():
    """Of the newest checkpoints, and one more; clients that never counted need none."""
    memories = RemoteMemories("run", checkpoints=1)
    memories.begin({})
    for leaf_round in (1, 2, 3):
        assert memories.pin({0: KeptVersion(leaf_round, "", 0), 1: KeptVersion(1, "", 0)}) == []
    assert (memories.needed(0), memories.needed(1), memories.needed(2)) == ([2, 3], [1], [])
    memories.pin({0: KeptVersion(4, "", 0)}, [(0, 1), (2, 7)])
    assert (memories.needed(0), memories.needed(1), memories.needed(2)) == ([1, 3, 4], [1], [7])


def test_versions_that_are_not_needed_go(tmp_path):
    for leaf_round in (1, 2, 3):
        write_memory(tmp_path, 0, leaf_round, state(leaf_round), durably=True)
        write_memory(tmp_path, 1, leaf_round, state(leaf_round))
    forget_memories(tmp_path, 0, {2})
    assert sorted(p.stem for p in (tmp_path / "client-000000").iterdir()) == ["round-000002"]
    assert len(list((tmp_path / "client-000001").iterdir())) == 3
