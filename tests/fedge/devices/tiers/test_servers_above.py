"""Trees of any depth on the virtual clock: by hand, as hierarchical averaging, through stops."""

import random

import numpy as np
import pytest
from virtual_world import START, WINDOWS, carried_out, config_of, outcome, stopped_and_gone_on

from fedge.config.tree import dotted
from fedge.devices.servers.rules import fedbuff
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import version_of
from fedge.devices.tiers.servers_above import servers_above
from fedge.devices.timeline.clock import Clock, Kind
from fedge.devices.work.ledger import Ledger
from fedge.states.averaging import weighted_mean

TIERS = '{"region": {"every": 1, "delay-s": 0.05, "link-megabytes-s": 0.001}}'
DEEP = {
    "hierarchy__tree": "2x2x4", "asynchrony__concurrency": 12, "asynchrony__evaluate_every_s": 0.6,
    "asynchrony__rule_args": '{"buffer": 2}', "devices__dropout": 0.1, "asynchrony__cloud_delay_s": 0.2,
}  # fmt: skip
AT_ONCE = {
    "asynchrony__cloud_delay_s": 0.0, "devices__preset": "equal", "asynchrony__evaluate_every_s": 1.0,
    "asynchrony__rule": "fedavg", "asynchrony__cloud_rule": "fedavg", "asynchrony__concurrency": 8,
}  # fmt: skip


def made(config, leaves, start, labels=None):
    """Servers above new leaves that sum up as FedBuff, each with a buffer of one."""

    def make(place):
        return DeviceServer(start, fedbuff, {"buffer": 1, "staleness": "constant"}, len(place.leaves))

    return servers_above(config, leaves, [1.0, 3.0, 2.0], make, labels)


def test_numbers_paths_and_weights():
    """Leaves 0 and 1 under region 0, leaf 2 under region 1: regions are 0 and 1, leaves 2, 3 and 4."""
    start = version_of({"w": np.zeros(1, np.float32)})
    leaves = [DeviceServer(start, fedbuff, {}, 1) for _ in range(3)]
    above = made(config_of(hierarchy__tree="((2,2),(2))", clients=6), leaves, start)
    assert [dotted(path) for path in above.paths] == ["0", "1", "0.0", "0.1", "1.0"]
    assert [parent.nodes for parent in above.parents] == [[0, 1], [2, 3], [4]]
    assert [parent.weights for parent in above.parents] == [[4.0, 2.0], [1.0, 3.0], [2.0]]
    assert [parent.above is above.cloud for parent in above.parents] == [False, True, True]
    assert [above.branch_of(leaf) for leaf in range(3)] == [0, 0, 1]
    assert above.branches == [above.parents[1].servers[0], above.parents[2].servers[0]]


def test_streams_of_places_differ():
    seen = []
    start = version_of({"w": np.zeros(1, np.float32)})

    def make(place):
        seen.append((place.path, place.stream, place.leaves))
        return DeviceServer(start, fedbuff, {}, len(place.leaves))

    leaves = [DeviceServer(start, fedbuff, {}, 1) for _ in range(3)]
    servers_above(config_of(hierarchy__tree="((2,2),(2))", clients=6), leaves, [1.0] * 3, make)
    assert seen == [((), 0, [[0, 1], [2]]), ((0,), 2, [[0], [1]]), ((1,), 3, [[2]])]


def test_a_single_leaf_has_nothing_above_it():
    assert servers_above(config_of(), [], [], lambda place: None) is None


def test_a_message_goes_all_the_way_by_hand():
    """Leaf 0 sends 4: its region makes 4 of 0 and sends it up and, after what comes from there, down.

    A second on each edge. At 1 s the region has 4. At 2 s leaf 0 gets it, and the cloud makes 4; at 3 s the
    region gets that, which it had. Leaf 2 hears of it as soon as its own region asks: it sends 6, which
    region 1 makes its model (1 s later), and at the cloud 4 + 6 = 10, so region 1 goes on with 10.
    """
    config = config_of(
        hierarchy__tree="((2,2),(2))", clients=6, asynchrony__cloud_delay_s=1.0,
        asynchrony__cloud_megabytes_s=1e6, asynchrony__tiers='{"region": {"delay-s": 1.0}}',
    )  # fmt: skip
    start = version_of({"w": np.zeros(1, np.float32)})
    leaves = [DeviceServer(start, fedbuff, {}, 1) for _ in range(3)]
    above, clock, ledger = made(config, leaves, start), Clock(), Ledger(1, servers=5)
    leaves[0].change(np.array([4.0]), {})
    above.note_version(0, clock, ledger)
    seen = []

    def go_on():
        while len(clock):
            event = clock.next()
            above.handle_event(event, clock, ledger)
            seen.append((event.time_us // 10**6, Kind(event.kind).name, event.subject))

    go_on()
    assert seen == [(1, "UP", 2), (1, "LEAVE", 1), (2, "UP", 0), (2, "DOWN", 2), (3, "DOWN", 0)]
    assert [parent.servers[0].version.vector.tolist() for parent in above.parents] == [[4.0], [4.0], [0.0]]
    leaves[2].change(np.array([6.0]), {})
    above.note_version(2, clock, ledger)
    go_on()
    assert [parent.servers[0].version.vector.tolist() for parent in above.parents] == [[10.0], [4.0], [10.0]]
    assert leaves[2].version.vector.tolist() == [6.0]  # sent down before the cloud's answer was there
    assert ledger.between.tolist() == [[4, 4], [4, 4], [4, 4], [0, 0], [4, 4]]
    assert ledger.moved["cloud_up"] == ledger.moved["cloud_down"] == 16


def means(steps, every, rounds):
    """Hierarchical averaging of 2 × 2 leaves of two devices: regions meet the cloud every so many rounds."""
    regions = [START["w"], START["w"]]
    for attempt in range(1, rounds + 1):
        ends = [np.float32(0.9) * regions[device // 4] + steps(device, attempt) for device in range(8)]
        leaves = [weighted_mean([{"w": e} for e in ends[i : i + 2]], [1, 1])["w"] for i in (0, 2, 4, 6)]
        regions = [weighted_mean([{"w": e} for e in leaves[i : i + 2]], [8, 8])["w"] for i in (0, 2)]
        if attempt % every == 0:
            cloud = weighted_mean([{"w": e} for e in regions], [16, 16])["w"]
            regions = [cloud, cloud]
    return cloud, regions


@pytest.mark.parametrize("every", [1, 2, 3])
def test_without_delays_it_is_hierarchical_averaging_on_every_tier(every):
    """HierFAVG on three tiers (Liu et al. 2020): regions meet every 1, 2 or 3 rounds, to the bit."""
    config = config_of(
        hierarchy__tree="2x2x2", asynchrony__tiers='{"region": {"every": 1}}', num_server_rounds=6,
        asynchrony__cloud_every=every, **AT_ONCE,
    )  # fmt: skip
    procedure, noted = carried_out(config, 8, workers=2)
    cloud, regions = means(
        lambda device, attempt: np.random.default_rng([device, attempt]).normal(size=2).astype(np.float32),
        every, 6,
    )  # fmt: skip
    assert procedure.served.vector.tobytes() == cloud.tobytes()
    found = [server.version.vector.tobytes() for server in procedure.above.branches]
    assert found == [region.tobytes() for region in regions]
    assert [server.number for server in procedure.above.servers] == [6 // every, 6, 6]
    assert [row.path for row in noted.results[-1].servers] == [
        (), (0,), (0, 0), (0, 1), (1,), (1, 0), (1, 1),
    ]  # fmt: skip
    rows = {row.path: row for row in noted.results[-1].servers}
    assert [rows[()].uplink_bytes, rows[0,].uplink_bytes, rows[0, 1].downlink_bytes] == [None, 16, 16]
    assert [rows[path].train_samples for path in ((), (1,), (1, 0))] == [n * WINDOWS for n in (8, 4, 2)]


@pytest.mark.parametrize("rules", [("fedbuff", "fedbuff"), ("fedasync", "fedavg"), ("fedavg", "ca2fl")])
def test_it_goes_on_after_random_events(rules, tmp_path):
    """At some of eight stops a region's model is on its way to the cloud or back."""
    rule, region_rule = rules
    tiers = TIERS.replace('"every"', f'"rule": "{region_rule}", "every"')
    config = config_of(**{
        **DEEP, "asynchrony__rule": rule, "asynchrony__tiers": tiers,
        "asynchrony__rule_args": '{"buffer": 2}' if rule == "fedbuff" else "",
    })  # fmt: skip
    procedure, noted = carried_out(config, 16)
    whole, last, sent = outcome(procedure, noted), procedure.clock.events, []
    everything = [server.version.vector.tobytes() for server in procedure.above.servers]
    for events in random.Random(rule + region_rule).sample(range(1, last), 8):
        procedure, noted = stopped_and_gone_on(
            config, 16, events, tmp_path,
            lambda stopped: sent.append(any(link.sent is not None for link in stopped.cloud.links)),
        )  # fmt: skip
        assert outcome(procedure, noted) == whole, f"after {events} of {last} events"
        assert [server.version.vector.tobytes() for server in procedure.above.servers] == everything
    assert any(sent)


def test_groups_of_regions_have_models_of_their_own():
    """Region 1 shares nothing with region 0; clients are served the model of their region's group."""
    config = config_of(
        hierarchy__tree="2x2x2", num_server_rounds=2, asynchrony__groups="0,1",
        asynchrony__tiers='{"region": {"every": 1}}', **AT_ONCE,
    )  # fmt: skip
    procedure, noted = carried_out(config, 8)
    one, other = (means_of_one(first) for first in (0, 4))
    assert [top.version.vector.tobytes() for top in procedure.tops] == [one] * 2 + [other] * 2
    assert noted.results[-1].labels == [0, 0, 1, 1]
    assert [row.cluster for row in noted.results[-1].servers] == [None, 0, 0, 0, 1, 1, 1]


FOUND = {
    "hierarchy__tree": "4x2x2", "asynchrony__concurrency": 16, "asynchrony__evaluate_every_s": 0.6,
    "asynchrony__rule_args": '{"buffer": 1}', "asynchrony__cloud_delay_s": 0.1, "devices__dropout": 0.1,
    "asynchrony__tiers": '{"region": {"every": 1, "delay-s": 0.05}}', "cluster__enabled": True,
    "cluster__method": "agglomerative", "cluster__signal": "cross-loss", "cluster__count": "2",
    "cluster__start_round": 2,
}  # fmt: skip


def alike(role, device):
    """Devices of regions 0 and 2, of 1 and 3, find each other's regions' models good."""
    return 0.1 if int(role.removeprefix("leaf-")) % 2 == device // 4 % 2 else 2.0


def test_the_cloud_groups_its_regions_by_the_losses_of_all_clients_below_and_goes_on_after_stops(tmp_path):
    """Eight leaves, four regions: what is compared are the regions' models, by clients of all leaves."""
    config = config_of(**FOUND)
    procedure, noted = carried_out(config, 16, losses=alike)
    whole, last = outcome(procedure, noted), procedure.clock.events
    assert procedure.cloud.labels == [0, 1, 0, 1]
    step = noted.results[1].cloud
    assert (len(step.labels), step.similarity.shape) == (4, (4, 4))
    by_leaf = [0, 0, 1, 1, 0, 0, 1, 1]
    assert [result.labels for result in noted.results] == [[0] * 8, by_leaf, by_leaf]
    one, other = procedure.tops[0].version, procedure.tops[2].version
    assert one.vector.tolist() != other.vector.tolist()
    assert [top.version is one for top in procedure.tops] == [label == 0 for label in by_leaf]
    for events in random.Random("regions").sample(range(last // 2, last), 4):
        found = stopped_and_gone_on(config, 16, events, tmp_path, losses=alike)
        assert outcome(*found) == whole, f"after {events} of {last} events"


def test_the_deal_test_parts_a_region_that_differs():
    """Three regions of five devices each, under two leaves; the probes of region 2 point elsewhere."""
    config = config_of(**{
        **FOUND, "hierarchy__tree": "((2,3),(2,3),(2,3))", "clients": 15, "cluster__signal": "affinity",
        "cluster__count": "auto", "cluster__patience": 2, "cluster__start_round": 1,
        "asynchrony__concurrency": 12,
    })  # fmt: skip
    procedure, noted = carried_out(config, 15, apart=lambda device: device >= 10)
    step = noted.results[0].cloud
    assert step.labels.tolist() == procedure.cloud.labels == [0, 0, 1]
    assert step.facts["tests"][0]["parts"] == [[0, 1], [2]]
    assert noted.results[-1].labels == [0, 0, 0, 0, 1, 1]
    together, _ = carried_out(config, 15)
    assert together.cloud.labels == [0, 0, 0]


def test_other_groups_of_regions_by_hand():
    """Regions of weights 4 and 2, with a group each, have models 2 and 8, and share 4 from now on.

    The cloud's answers are there after a second: region 1 has 4, region 0, which had gone on by 1, has 5.
    """
    config = config_of(
        hierarchy__tree="((2,2),(2))", clients=6, asynchrony__groups="0,1", asynchrony__cloud_delay_s=1.0,
        asynchrony__cloud_megabytes_s=1e6,
    )  # fmt: skip
    start = version_of({"w": np.zeros(1, np.float32)})
    leaves = [DeviceServer(start, fedbuff, {}, 1) for _ in range(3)]
    above, clock, ledger = made(config, leaves, start, [0, 1]), Clock(), Ledger(1, servers=5)
    for region, number in zip(above.branches, (2.0, 8.0), strict=True):
        region.change(np.array([number]), {})
    above.cloud.regroup([0, 0], above.branches, clock, ledger)
    assert [server.version.vector.tolist() for server in above.cloud.servers] == [[4.0]]
    above.branches[0].change(np.array([3.0]), {})
    while len(clock):
        assert above.handle_event(clock.next(), clock, ledger)
    assert [region.version.vector.tolist() for region in above.branches] == [[5.0], [4.0]]
    assert [leaf.version.vector.tolist() for leaf in leaves] == [[0.0]] * 3  # with their region's next answer


def means_of_one(first):
    """Two rounds of a region of four devices by itself, as bytes."""
    state = START["w"]
    for attempt in (1, 2):
        steps = [
            np.random.default_rng([device, attempt]).normal(size=2) for device in range(first, first + 4)
        ]
        ends = [np.float32(0.9) * state + step.astype(np.float32) for step in steps]
        leaves = [weighted_mean([{"w": end} for end in ends[i : i + 2]], [1, 1]) for i in (0, 2)]
        state = weighted_mean(leaves, [8, 8])["w"]
    return state.tobytes()
