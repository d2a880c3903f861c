"""The probe on the virtual clock: real messages, updates of the first model, groups told from chance."""

import json

import numpy as np
import pytest
from virtual_world import WINDOWS, carried_out, config_of, world

from fedge.devices.snapshot import restore, snapshot

DEVICES, LEAVES = 15, 3
FOUND = {
    "hierarchy__num_servers": LEAVES, "asynchrony__concurrency": 9, "asynchrony__evaluate_every_s": 2.0,
    "asynchrony__rule_args": '{"buffer": 2}', "asynchrony__cloud_rule": "fedasync", "num_server_rounds": 4,
    "cluster__enabled": True, "cluster__signal": "affinity", "cluster__method": "agglomerative",
    "cluster__count": "auto", "cluster__patience": 2, "cluster__level": "auto",
}  # fmt: skip


def odd_leaf(device):
    """1 for the devices of the last leaf."""
    return device * LEAVES // DEVICES == LEAVES - 1


def test_all_devices_make_an_update_of_the_first_model():
    with world(config_of(**FOUND), DEVICES, apart=odd_leaf, fails={(4, 1)}) as (procedure, _):
        probed = procedure.world.probe.updates(procedure.world.population, 1)
    assert list(probed.failures) == [4]
    assert probed.likeness.clients.tolist() == [device for device in range(DEVICES) if device != 4]
    assert probed.likeness.windows.tolist() == [WINDOWS] * (DEVICES - 1)
    nbytes = procedure.servers[0].version.nbytes
    assert (probed.downlink_bytes, probed.uplink_bytes) == (DEVICES * nbytes, (DEVICES - 1) * nbytes)
    (cosines,) = probed.likeness.cosines
    odd = np.array([odd_leaf(device) for device in probed.likeness.clients])
    assert cosines[np.ix_(odd, odd)].min() > cosines[np.ix_(odd, ~odd)].max()


def test_one_leaf_that_differs_is_parted_at_the_first_evaluation_and_never_again():
    """Every p is one of the deals there are; later evaluations do not compare."""
    procedure, noted = carried_out(config_of(**FOUND), DEVICES, apart=odd_leaf)
    steps = [result.cloud for result in noted.results]
    assert steps[1:] == [None] * 3
    assert steps[0].labels.tolist() == procedure.cloud.labels == [0, 0, 1]
    (test, *_) = steps[0].facts["tests"]
    assert (test["parts"], test["level"]) == ([[0, 1], [2]], 0.01)
    assert test["p"] <= 0.01
    assert steps[0].facts["events"] == [{"kind": "split", "before": [[0, 1, 2]], "after": [[0, 1], [2]]}]
    asked = 2 * DEVICES * procedure.servers[0].version.nbytes
    assert steps[0].facts["exchange_bytes"] == asked


def test_devices_that_are_alike_stay_together():
    procedure, noted = carried_out(config_of(**FOUND), DEVICES)
    assert procedure.cloud.labels == [0, 0, 0]
    assert noted.results[0].cloud.facts["tests"][0]["p"] > 0.01


def test_too_few_answers_are_asked_for_again():
    """Nobody but two devices answers a probe: no result, and the next evaluation asks again."""
    fails = {(device, 1) for device in range(2, DEVICES)}
    _, noted = carried_out(config_of(**FOUND), DEVICES, apart=odd_leaf, fails=fails)
    assert all("can be tested from" in result.cloud.facts["skipped"] for result in noted.results)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_that_goes_on_after_the_test_has_the_same_bits(workers):
    whole, _ = carried_out(config_of(**FOUND), DEVICES, apart=odd_leaf)
    with world(config_of(**FOUND), DEVICES, apart=odd_leaf) as (procedure, _):
        procedure.begin()
        procedure.run_until(2)
        groups, facts = snapshot(procedure)
    with world(config_of(**FOUND), DEVICES, workers, apart=odd_leaf) as (procedure, noted):
        restore(procedure, groups, json.loads(json.dumps(facts)))
        procedure.run_until(4)
    assert [result.cloud for result in noted.results] == [None, None]
    assert procedure.groups.is_tested
    for one, other in zip(whole.servers, procedure.servers, strict=True):
        assert one.version.vector.tobytes() == other.version.vector.tobytes()
