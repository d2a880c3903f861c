"""Updates of clients from one start: cosines by hand, by kind of entry."""

import numpy as np
import pytest

from fedge.clustering.likeness.updates import Likeness, Updates, even_windows

START = {
    "weight": np.array([1.0, 1.0], dtype=np.float32),
    "running_mean": np.array([0.0, 0.0], dtype=np.float32),
    "num_batches_tracked": np.array(0),
}


def trained(weight, mean, batches=1):
    """A state that has moved by `weight` and `mean`."""
    return {
        "weight": START["weight"] + np.array(weight, dtype=np.float32),
        "running_mean": np.array(mean, dtype=np.float32),
        "num_batches_tracked": np.array(batches),
    }


def test_parameters_and_statistics_are_compared_apart_and_counters_not_at_all():
    updates = Updates(START, ["weight"], 1)
    updates.note(7, 1, trained([1, 0], [0, 3], batches=50), 70)
    updates.note(2, 0, trained([1, 1], [0, 1]), 20)
    updates.note(4, 0, trained([0, 2], [2, 0]), 40)
    found = updates.likeness()
    half = np.sqrt(0.5)
    assert found.cosines[0] == pytest.approx(np.array([[1, half, half], [half, 1, 0], [half, 0, 1]]))
    assert found.cosines[1] == pytest.approx(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]]))
    assert (found.leaf_of.tolist(), found.global_round, len(updates)) == ([0, 0, 1], 1, 3)
    assert found.windows.tolist() == [20, 40, 70]
    elsewhere = Updates(START, ["weight"], 1)
    for client, summaries in updates.summaries().items():
        elsewhere.take(client, 1 if client == 7 else 0, summaries)
    again = elsewhere.likeness()
    assert np.array_equal(again.cosines, found.cosines)
    assert again.windows.tolist() == found.windows.tolist()


def test_a_model_without_statistics_has_one_kind():
    updates = Updates({"weight": START["weight"]}, ["weight"], 3)
    for client in range(3):
        updates.note(client, client, {"weight": START["weight"] + np.float32(client)}, 9)
    assert updates.likeness().cosines.shape == (1, 3, 3)
    assert updates.likeness().cosines[0, 0].tolist() == [1, 0, 0]  # client 0 has not moved


def test_what_is_not_finite_takes_no_part():
    updates = Updates(START, ["weight"], 1)
    for client, weight in enumerate(([1, 0], [np.nan, 0], [0, 1])):
        updates.note(client, 0, trained(weight, [1, 1]), 9)
    assert len(updates) == 2
    assert np.isfinite(updates.likeness().cosines).all()


def test_likeness_survives_as_arrays():
    assert Likeness.from_state(Likeness(np.eye(3)[None], np.array([0, 1, 1]), 4).to_state()).strata is None
    likeness = Likeness(np.eye(3)[None], np.array([0, 1, 1]), 4, np.array([10, 10, 50]))
    again = Likeness.from_state(likeness.to_state())
    assert again.strata.tolist() == [0, 0, 2]
    assert again.cosines.tolist() == likeness.cosines.tolist()
    assert (again.leaf_of.tolist(), again.global_round) == ([0, 1, 1], 4)


def of_clients(clients, cosines, leaves):
    """Likeness of some clients."""
    return Likeness(np.asarray(cosines)[None], np.array(leaves), 1, None, np.array(clients))


def test_who_is_missing_is_no_news_and_who_trained_otherwise_is():
    """Three clients, then without client 5; then client 9's update is another."""
    three = [[1.0, 0.5, 0.2], [0.5, 1.0, 0.1], [0.2, 0.1, 1.0]]
    old = of_clients([2, 5, 9], three, [0, 1, 1])
    assert of_clients([2, 9], [[1.0, 0.2], [0.2, 1.0]], [0, 1]).is_same_update(old)
    assert old.is_same_update(of_clients([2, 9], [[1.0, 0.2], [0.2, 1.0]], [0, 1]))
    assert not of_clients([2, 9], [[1.0, 0.3], [0.3, 1.0]], [0, 1]).is_same_update(old)
    assert not of_clients([2, 9], [[1.0, 0.2], [0.2, 1.0]], [0, 0]).is_same_update(old)
    assert not of_clients([3, 4], [[1.0, 0.2], [0.2, 1.0]], [0, 1]).is_same_update(old)
    kept = Likeness.from_state(old.to_state())
    assert kept.clients.tolist() == [2, 5, 9]
    assert kept.is_same_update(old)


def test_windows_of_equal_training_by_hand():
    """All that they have within a factor of two; else the fewest, and half of the median at least."""
    assert even_windows([100] * 9) == 0
    assert even_windows([40] * 20 + [400] * 4) == 40
    assert even_windows([3] + [100] * 9) == 50
    assert even_windows([]) == 0
