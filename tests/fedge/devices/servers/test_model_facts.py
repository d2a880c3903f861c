"""Facts of its model for a rule: networks with a model loaded, made once each."""

import numpy as np
from virtual_world import START, facts_of

from fedge.devices.servers.vectors import version_of


def test_networks_are_made_once_and_hold_what_was_loaded_last():
    version = version_of({name: np.array(array) for name, array in START.items()})
    facts = facts_of(version, seed=1, children=3)
    one = facts.network(0, version.vector)
    two = facts.network(1, version.vector + 1)
    assert facts.network(0, version.vector + 2) is one is not two
    assert one.w.tolist() == (START["w"] + 2).tolist()
    assert two.w.tolist() == (START["w"] + 1).tolist()
    assert not one.training
    assert not any(each.requires_grad for each in one.parameters())
    assert facts.trainable == {"w"}
    assert facts.classes == 2
