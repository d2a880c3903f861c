"""Leaves and cloud on the virtual clock: exchanges by hand, both levels in rounds or not, resuming."""

import random

import numpy as np
import pytest
from torch import nn
from virtual_world import REVIVED, START, carried_out, config_of, digest, outcome, stopped_and_gone_on

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import SERVER_RULES
from fedge.devices.predictions import unchanged_model_advice
from fedge.devices.servers.model_facts import ModelFacts
from fedge.devices.servers.rules import fedavg, fedbuff
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import version_of
from fedge.devices.tiers.parent import Parent, cloud_arguments
from fedge.devices.timeline.clock import Clock
from fedge.devices.work.ledger import Ledger
from fedge.states.averaging import weighted_mean

RULES = [name for name in SERVER_RULES.names if name != "off"]
LEVELS = [("fedbuff", "fedbuff"), ("fedbuff", "fedavg"), ("fedavg", "fedasync"), ("fedavg", "fedavg")]
ALL_LEVELS = [*((rule, "fedbuff") for rule in RULES), *(("fedbuff", rule) for rule in RULES)]
LATE = REVIVED.replace('"freeze": 1, "warmup": 3', '"buffer": 3, "freeze": 3, "warmup": 6')
FOUND = {
    "hierarchy__num_servers": 4, "asynchrony__concurrency": 12, "cluster__enabled": True,
    "cluster__method": "agglomerative", "cluster__signal": "cross-loss", "cluster__count": "2",
    "cluster__start_round": 2,
}  # fmt: skip


def config(rule="fedbuff", cloud_rule="fedbuff", **changes):
    given = {
        "hierarchy__num_servers": 3, "asynchrony__rule": rule, "asynchrony__cloud_rule": cloud_rule,
        "asynchrony__rule_args": {"fedbuff": '{"buffer": 2}', "fedrevive": LATE}.get(rule, ""),
        "asynchrony__cloud_rule_args": {"fedrevive": LATE.replace("3,", "1,", 1)}.get(cloud_rule, ""),
        "asynchrony__concurrency": 9, "asynchrony__evaluate_every_s": 0.6, "devices__dropout": 0.1,
        "asynchrony__cloud_delay_s": 0.1,
    }  # fmt: skip
    return config_of(**{**given, **changes})


def test_an_exchange_by_hand():
    """The leaf sends 4 and makes 7 meanwhile; the cloud makes 1 + ½ (4 − 1); the leaf goes on with 5.5."""
    of = config(asynchrony__cloud_delay_s=1.0, asynchrony__cloud_megabytes_s=4e-6).asynchrony
    start = version_of({"w": np.array([1.0], np.float32)})
    cloud = Parent(of, DeviceServer(start, fedbuff, {"buffer": 1, "lr": 0.5}, 1), [5.0])
    leaf, clock, ledger = DeviceServer(start, fedbuff, {}, 1), Clock(), Ledger(1, servers=3)
    leaf.change(np.array([4.0]), {})
    cloud.note_version(0, leaf, clock, ledger)
    assert clock.next()[:3] == (2_000_000, 1, 0)  # a second, and four bytes at four bytes a second
    leaf.change(np.array([7.0]), {})
    cloud.note_version(0, leaf, clock, ledger)
    assert len(clock) == 0  # it waits
    cloud.receive(0, clock, ledger)
    assert cloud.servers[0].version.vector.tolist() == [2.5]
    assert clock.next()[:3] == (4_000_000, 2, 0)
    cloud.deliver_answer(0, leaf, clock, ledger)
    assert leaf.version.vector.tolist() == [5.5]
    assert len(clock) == 1  # what it has made meanwhile goes out now
    assert ledger.moved["cloud_up"] == 8
    assert ledger.moved["cloud_down"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "cloud_rule"), ALL_LEVELS)
def test_any_number_of_workers_gives_the_same_bits(rule, cloud_rule):
    """Every rule on either level: the same sha256 of model, curve and histogram, and all else the same."""
    of = config(rule, cloud_rule)
    one, two, four = (outcome(*carried_out(of, 18, workers=workers)) for workers in (1, 2, 4))
    assert digest(one) == digest(two) == digest(four)
    assert one == two == four
    assert one["served"] != START["w"].tobytes()
    assert one["moved"]["cloud_up"] >= one["moved"]["cloud_down"] > 0


@pytest.mark.parametrize(("rule", "cloud_rule"), LEVELS)
def test_it_goes_on_after_random_events(rule, cloud_rule, tmp_path):
    """At 20 in all: among every five one at which a leaf waits for the cloud, and where there are buffers one
    in the middle of a buffer.
    """
    of = config(rule, cloud_rule)
    procedure, noted = carried_out(of, 18)
    whole, last, seen = outcome(procedure, noted), procedure.clock.events, []

    def look(stopped):
        seen.append(
            [
                any(link.sent is not None for link in stopped.cloud.links),
                any(server.memory.buffer for server in stopped.servers),
            ]
        )

    for events in random.Random(rule + cloud_rule).sample(range(1, last), 5):
        found = stopped_and_gone_on(of, 18, events, tmp_path, look)
        assert outcome(*found) == whole, f"after {events} of {last} events"
    waited, buffered = map(sum, zip(*seen, strict=True))
    assert waited > 0
    assert buffered > 0


def test_without_delays_it_is_hierarchical_averaging():
    """Equal times, full buffers, no way to the cloud: after each second the mean of the leaves' means."""
    of = config_of(
        hierarchy__num_servers=3, asynchrony__concurrency=6, asynchrony__rule_args='{"buffer": 2}',
        asynchrony__cloud_rule="fedavg", asynchrony__cloud_delay_s=0.0, devices__preset="equal",
        asynchrony__evaluate_every_s=1.0,
    )  # fmt: skip
    procedure, _ = carried_out(of, 6, workers=2)
    state = START
    for attempt in (1, 2, 3):
        steps = [np.random.default_rng([device, attempt]).normal(size=2) for device in range(6)]
        ends = [np.float32(0.9) * state["w"] + step.astype(np.float32) for step in steps]
        leaves = [weighted_mean([{"w": end} for end in ends[i : i + 2]], [1, 1]) for i in (0, 2, 4)]
        state = weighted_mean(leaves, [8, 8, 8])
    assert procedure.served.vector.tobytes() == state["w"].tobytes()
    assert all(server.version is procedure.served for server in procedure.servers)


def test_groups_have_models_of_their_own():
    """As before, but leaf 2 has a model of its own: the mean of its two devices, nothing of the others."""
    of = config_of(
        hierarchy__num_servers=3, asynchrony__concurrency=6, asynchrony__rule_args='{"buffer": 2}',
        asynchrony__cloud_rule="fedavg", asynchrony__cloud_delay_s=0.0, devices__preset="equal",
        asynchrony__evaluate_every_s=1.0, asynchrony__groups="7,7,3",
    )  # fmt: skip
    procedure, noted = carried_out(of, 6, workers=2)
    states = [START, START]
    for attempt in (1, 2, 3):
        of_device = [states[device // 4]["w"] for device in range(6)]
        steps = [np.random.default_rng([device, attempt]).normal(size=2) for device in range(6)]
        ends = [np.float32(0.9) * start + step.astype(np.float32)
                for start, step in zip(of_device, steps, strict=True)]  # fmt: skip
        leaves = [weighted_mean([{"w": end} for end in ends[i : i + 2]], [1, 1]) for i in (0, 2, 4)]
        states = [weighted_mean(leaves[:2], [8, 8]), leaves[2]]
    found = [top.version.vector.tobytes() for top in procedure.tops]
    assert found == [states[group]["w"].tobytes() for group in (0, 0, 1)]
    assert noted.results[-1].labels == [0, 0, 1]
    assert noted.rows[-1].version == 6


def alike(role, device):
    """Devices of leaves 0 and 2, of 1 and 3, find each other's models good."""
    return 0.1 if int(role.removeprefix("leaf-")) % 2 == device // 4 % 2 else 2.0


@pytest.mark.slow
def test_groups_are_found_at_an_evaluation_and_survive_a_stop(tmp_path):
    of = config(**FOUND)
    procedure, noted = carried_out(of, 16, losses=alike)
    whole, last = outcome(procedure, noted), procedure.clock.events
    assert [result.labels for result in noted.results] == [[0] * 4, [0, 1, 0, 1], [0, 1, 0, 1]]
    assert [result.cloud is None for result in noted.results] == [True, False, False]
    assert noted.results[1].cloud.facts["events"][0]["kind"] == "split"
    one, other = (procedure.tops[leaf].version for leaf in (0, 1))
    assert one is procedure.tops[2].version is not other is procedure.tops[3].version
    assert one.vector.tolist() != other.vector.tolist()
    for events in random.Random("groups").sample(range(last // 2, last), 4):
        found = stopped_and_gone_on(of, 16, events, tmp_path, losses=alike)
        assert outcome(*found) == whole, f"after {events} of {last} events"


def test_other_groups_by_hand():
    """Weights 1, 3, 2 and models 2, 4, 8: leaves 0 and 1 now share 3.5. What was on its way is void."""
    of = config().asynchrony
    start = version_of({"w": np.array([1.0], np.float32)})
    cloud = Parent(of, DeviceServer(start, fedbuff, {"buffer": 1}, 3), [1.0, 3.0, 2.0])
    leaves, clock, ledger = (
        [DeviceServer(start, fedbuff, {}, 1) for _ in range(3)],
        Clock(),
        Ledger(1, servers=3),
    )
    for leaf, number in zip(leaves, (2.0, 4.0, 8.0), strict=True):
        leaf.change(np.array([number]), {})
    cloud.note_version(0, leaves[0], clock, ledger)
    cloud.regroup([0, 0, 1], leaves, clock, ledger)
    assert [server.version.vector.tolist() for server in cloud.servers] == [[3.5], [8.0]]
    old = clock.next()
    assert (old.kind, old.number, cloud.links[0].exchange) == (1, 0, 1)  # so the loop leaves it alone
    for _ in range(3):
        event = clock.next()
        assert event.kind == 2
        cloud.deliver_answer(event.subject, leaves[event.subject], clock, ledger)
    assert [leaf.version.vector.tolist() for leaf in leaves] == [[3.5], [3.5], [8.0]]
    kept = cloud.servers[1]
    cloud.regroup([0, 1, 2], leaves, clock, ledger)
    assert cloud.servers[2] is kept  # leaf 2 was alone before, too
    assert [len(cloud.group_members(group)) for group in range(3)] == [1, 1, 1]


def test_a_group_draws_by_its_number_and_counts_its_former_versions():
    """A checkpoint has numbers of groups, not their streams: after a stop, a kept group drew by another."""
    start = version_of({"w": np.array([1.0], np.float32)})
    facts = ModelFacts(nn.Identity, start, (1,), np.ones((4, 1)), seed=0, server=10)
    cloud = Parent(config().asynchrony, DeviceServer(start, fedbuff, {}, 4, facts), [1.0] * 4, [0, 1, 2, 2])
    children = [DeviceServer(start, fedbuff, {}, 1) for _ in range(4)]
    first, second, kept = cloud.servers
    first.number, second.number, kept.number = 5, 7, 9
    cloud.regroup([0, 0, 1, 1], children, Clock(), Ledger(1, servers=4))
    assert cloud.servers[1] is kept
    assert [server.memory.facts.server for server in cloud.servers] == [10, 11]
    assert cloud.dissolved_versions == 12


@pytest.mark.parametrize("start_round", [2, 3])
def test_versions_are_totals_although_groups_change(start_round):
    """They fell to 0; and a run that changed its groups at its end was said to have the initial model."""
    procedure, noted = carried_out(config(**{**FOUND, "cluster__start_round": start_round}), 16, losses=alike)
    versions = [row.version for row in noted.rows]
    assert versions == sorted(versions)
    assert versions[0] < versions[-1]
    assert unchanged_model_advice(procedure) is None


def test_the_cloud_is_asked_as_often_as_it_is_said():
    rare, often = (carried_out(config(asynchrony__cloud_every=every), 18)[0] for every in (5, 1))
    assert 0 < rare.ledger.moved["cloud_up"] < often.ledger.moved["cloud_up"]


def test_arguments_of_the_cloud():
    def own(model, memory, arrival, buffer=7):
        return None

    assert cloud_arguments(fedbuff, {"lr": 0.5}) == {"buffer": 1, "lr": 0.5}
    assert cloud_arguments(fedbuff, {"buffer": 3}) == {"buffer": 3}
    assert cloud_arguments(own, {}) == {"buffer": 1}
    assert cloud_arguments(fedavg, {}) == {}
    with pytest.raises(ConfigError, match=r"cloud-rule-args\.buffer must be at most hierarchy\.num-servers"):
        config(asynchrony__cloud_rule_args='{"buffer": 4}')
