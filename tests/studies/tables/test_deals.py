"""Half of the classes per edge, one per client."""

import numpy as np
from made_up import make_windows

from studies.tables.deals import half_the_classes


def test_edges_have_half_of_the_classes_and_clients_one():
    """Classes 0, 1 at leaf 0 and 2, 3 at leaf 1; clients 0 and 2 share class 0, of both parts."""
    rows = [("a", None, None, label) for label in (0, 1, 2, 3) for _ in range(8)]
    windows = make_windows(rows, classes=4)
    object.__setattr__(windows, "part", np.tile(["train"] * 6 + ["test"] * 2, 4))
    client = half_the_classes(windows, [4, 2], np.random.default_rng(0))
    held = {k: sorted(set(windows.labels[client == k].tolist())) for k in range(6)}
    assert held == {0: [0], 1: [1], 2: [0], 3: [1], 4: [2], 5: [3]}
    for k, (train, test) in {0: (3, 1), 1: (3, 1), 2: (3, 1), 3: (3, 1), 4: (6, 2), 5: (6, 2)}.items():
        mine = windows.part[client == k]
        assert ((mine == "train").sum(), (mine == "test").sum()) == (train, test)


def test_a_class_that_nobody_owns_stays_out():
    """One leaf has the first half alone."""
    windows = make_windows([("a", None, None, label) for label in (0, 1, 2, 3)] * 2, classes=4)
    client = half_the_classes(windows, [2], np.random.default_rng(0))
    assert client[windows.labels >= 2].tolist() == [-1] * 4
    assert sorted(client[windows.labels < 2].tolist()) == [0, 0, 1, 1]
