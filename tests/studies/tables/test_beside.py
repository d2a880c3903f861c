"""NIID-Bench's SCAFFOLD: without momentum it is Fedge's own; with it, one client by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load
from small_runs import carry_out, small_config

from studies.tables.beside import BesideLeaf

RULE = "studies.tables.beside:ScaffoldBeside"


@pytest.mark.whole_runs
def test_without_momentum_both_are_the_same_rule(tmp_path):
    """Nine equal clients, three rounds; last bits differ: one corrects gradients, the other weights."""
    options = {
        "cluster__enabled": False, "gate__enabled": False, "hierarchy__num_servers": 1,
        "num_server_rounds": 3, "train__momentum": 0.0, "train__clip_norm": 0.0, "train__local_epochs": 2,
    }  # fmt: skip
    config = small_config(tmp_path, **options)
    own = carry_out({**config, "scaffold.enabled": True}, "own")
    beside = carry_out({**config, "scaffold.enabled": False, "train.algorithm": RULE}, "beside")
    none = carry_out({**config, "scaffold.enabled": False}, "none")
    for name, array in states(own).items():
        np.testing.assert_allclose(states(beside)[name], array, rtol=1e-4, atol=1e-6)
        assert not np.allclose(states(none)[name], array, rtol=1e-4, atol=1e-6)


def states(found):
    """Entries of the final models of a run."""
    return load(found["models"])


def test_the_leafs_control_moves_by_shares_of_all():
    """c = 1; two of four clients took part, with changes of 2 and 4: c = 1 + 6 / 4."""
    memory = {"c": {"w": np.array([1.0])}}
    brought = [SimpleNamespace(arrays={"delta/w": np.array([change])}) for change in (2.0, 4.0)]
    leaf = SimpleNamespace(memory=memory, brought=brought, clients=4, mean={"w": np.array([7.0])})
    assert BesideLeaf().combine(leaf) is leaf.mean
    assert memory["c"]["w"].tolist() == [2.5]
