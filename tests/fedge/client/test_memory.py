"""Memory of clients that own their data, on their own machines."""

import numpy as np
import pytest

from fedge.client.memory import KEY, keep_memory, memory_in, memory_or_lost, own_folder
from fedge.exchange.algorithm import MemoryPlace
from fedge.states.files import StateFileError
from fedge.states.named_states import packed

RUN = "0123456789abcdef"


def state(number):
    return {"v": np.full(3, float(number))}


def there(folder):
    return sorted(int(path.stem.removeprefix("round-")) for path in folder.rglob("*.safetensors"))


def test_versions_stay_as_long_as_the_server_needs_them(tmp_path):
    """The one that counts, the new one, and those of checkpoints; rounds undone leave no trace."""
    node, kept = {KEY: str(tmp_path)}, {}
    for leaf_round in (1, 2, 3, 4):
        before = kept.get(leaf_round - 1)
        place = MemoryPlace(run=RUN, kept=before, keep=True, needed=(2,) if leaf_round > 2 else ())
        kept[leaf_round] = keep_memory(place, 5, leaf_round, state(leaf_round), {}, node)[0]
    assert there(tmp_path) == [2, 3, 4]
    assert memory_in(MemoryPlace(run=RUN, kept=kept[3]), 5, node)[0]["v"].tolist() == [3.0] * 3
    undone = MemoryPlace(run=RUN, kept=kept[2], keep=True)
    again = keep_memory(undone, 5, 3, state(30), {}, node)[0]
    assert there(tmp_path) == [2, 3]
    assert memory_in(MemoryPlace(run=RUN, kept=again), 5, node)[0]["v"].tolist() == [30.0] * 3


def test_what_an_uplink_could_not_send_lies_beside_the_method_s_memory(tmp_path):
    """And alone, where the method keeps nothing."""
    node, waits = {KEY: str(tmp_path)}, {"w": np.array([0.5, -1.0])}
    for leaf_round, memory in ((1, packed(state(7), "memory")), (2, {})):
        place = MemoryPlace(run=RUN, keep=True)
        kept = keep_memory(place, 5, leaf_round, memory, waits, node)[0]
        own, found = memory_in(MemoryPlace(run=RUN, kept=kept), 5, node)
        assert found["w"].tolist() == [0.5, -1.0]
        assert sorted(own) == (["v"] if memory else [])


def test_a_lost_memory_is_begun_anew_only_where_it_is_the_client_s_own(tmp_path):
    """In a run's folder it is an error, as before."""
    node = {KEY: str(tmp_path / "own")}
    kept = keep_memory(MemoryPlace(run=RUN, keep=True), 0, 1, state(1), {}, node)[0]
    assert memory_or_lost(MemoryPlace(run=RUN, kept=kept), 0, node)[2] == ""
    for file in (tmp_path / "own").rglob("*.safetensors"):
        file.unlink()
    memory, waits, why = memory_or_lost(MemoryPlace(run=RUN, kept=kept), 0, node)
    assert (memory, waits) == (None, {})
    assert "round-000001" in why
    with pytest.raises(StateFileError):
        memory_or_lost(MemoryPlace(folder=str(tmp_path / "run"), kept=kept), 0, node)
    with pytest.raises(StateFileError):  # a model is never evaluated with another memory in silence
        memory_in(MemoryPlace(run=RUN, kept=kept), 0, node)


@pytest.mark.parametrize("run", ["../../etc", "0123456789abcde", "0123456789abcdeF", RUN + "/x", "/tmp/x"])
def test_a_cloud_names_no_folder(run, tmp_path):
    """Nothing is written for a run whose name is none."""
    with pytest.raises(StateFileError, match="16 digits"):
        keep_memory(MemoryPlace(run=run, folder="/", keep=True), 0, 1, state(1), {}, {KEY: str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_without_a_word_it_lies_in_the_account_s_folder_of_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert own_folder({}) == tmp_path / "fedge" / "memory"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert own_folder({}) == tmp_path / ".local" / "state" / "fedge" / "memory"
