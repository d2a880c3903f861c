"""Leaves and cloud on the virtual clock: exchanges by hand, both levels in rounds or not, resuming."""

import random

import numpy as np
import pytest
from virtual_world import START, carried_out, config_of, outcome, world

from fedge.config.option import ConfigError
from fedge.devices.clock import Clock
from fedge.devices.cloud import Cloud, cloud_arguments
from fedge.devices.ledger import Ledger
from fedge.devices.rules import fedbuff
from fedge.devices.server import Server
from fedge.devices.snapshot import restore, snapshot
from fedge.devices.vectors import version_of
from fedge.states.averaging import weighted_mean
from fedge.states.checkpoint import read_checkpoint, write_checkpoint

LEVELS = [("fedbuff", "fedbuff"), ("fedbuff", "fedavg"), ("fedavg", "fedasync"), ("fedavg", "fedavg")]


def config(rule="fedbuff", cloud_rule="fedbuff", **changes):
    given = {
        "hierarchy__num_servers": 3, "asynchrony__rule": rule, "asynchrony__cloud_rule": cloud_rule,
        "asynchrony__rule_args": '{"buffer": 2}' if rule == "fedbuff" else "",
        "asynchrony__concurrency": 9, "asynchrony__evaluate_every_s": 0.6, "devices__dropout": 0.1,
        "asynchrony__cloud_delay_s": 0.1,
    }  # fmt: skip
    return config_of(**{**given, **changes})


def test_an_exchange_by_hand():
    """The leaf sends 4 and makes 7 meanwhile; the cloud makes 1 + ½ (4 − 1); the leaf goes on with 5.5."""
    of = config(asynchrony__cloud_delay_s=1.0, asynchrony__cloud_megabytes_s=4e-6).asynchrony
    start = version_of({"w": np.array([1.0], np.float32)})
    cloud = Cloud(of, Server(start, fedbuff, {"buffer": 1, "lr": 0.5}, 1), [5.0])
    leaf, clock, ledger = Server(start, fedbuff, {}, 1), Clock(), Ledger(1)
    leaf.change(np.array([4.0]), {})
    cloud.renewed(0, leaf, clock, ledger)
    assert clock.next()[:3] == (2_000_000, 1, 0)  # a second, and four bytes at four bytes a second
    leaf.change(np.array([7.0]), {})
    cloud.renewed(0, leaf, clock, ledger)
    assert len(clock) == 0  # it waits
    cloud.take(0, clock, ledger)
    assert cloud.server.version.vector.tolist() == [2.5]
    assert clock.next()[:3] == (4_000_000, 2, 0)
    cloud.give(0, leaf, clock, ledger)
    assert leaf.version.vector.tolist() == [5.5]
    assert len(clock) == 1  # what it has made meanwhile goes out now
    assert ledger.moved["cloud_up"] == 8
    assert ledger.moved["cloud_down"] == 4


@pytest.mark.parametrize(("rule", "cloud_rule"), LEVELS)
def test_any_number_of_workers_gives_the_same_bits(rule, cloud_rule):
    of = config(rule, cloud_rule)
    one, two, four = (outcome(*carried_out(of, 18, workers=workers)) for workers in (1, 2, 4))
    assert one == two == four
    assert one["served"] != START["w"].tobytes()
    assert one["moved"]["cloud_up"] >= one["moved"]["cloud_down"] > 0


@pytest.mark.parametrize(("rule", "cloud_rule"), LEVELS)
def test_it_goes_on_after_random_events(rule, cloud_rule, tmp_path):
    """Among them one at which a leaf waits for the cloud."""
    of = config(rule, cloud_rule)
    procedure, noted = carried_out(of, 18)
    whole, last, waited = outcome(procedure, noted), procedure.clock.events, 0
    for events in random.Random(rule + cloud_rule).sample(range(1, last), 5):
        with world(of, 18) as (procedure, before):
            procedure.begin()
            procedure.go_on(3, events=events)
            waited += sum(link.sent is not None for link in procedure.cloud.links)
            path = write_checkpoint(tmp_path, events, *snapshot(procedure))
        found = read_checkpoint(path)
        with world(of, 18, workers=2) as (procedure, after):
            restore(procedure, found.groups, found.facts)
            procedure.go_on(3)
        after.rows[:0], after.jobs[:0] = before.rows, before.jobs
        assert outcome(procedure, after) == whole, f"after {events} of {last} events"
    assert waited > 0


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


def test_the_cloud_is_asked_as_often_as_it_is_said():
    rare, often = (carried_out(config(asynchrony__cloud_every=every), 18)[0] for every in (5, 1))
    assert 0 < rare.ledger.moved["cloud_up"] < often.ledger.moved["cloud_up"]


def test_arguments_of_the_cloud():
    assert cloud_arguments("fedbuff", {"lr": 0.5}) == {"buffer": 1, "lr": 0.5}
    assert cloud_arguments("fedbuff", {"buffer": 3}) == {"buffer": 3}
    assert cloud_arguments("fedavg", {}) == {}
    with pytest.raises(ConfigError, match=r"cloud-rule-args\.buffer must be at most hierarchy\.num-servers"):
        config(asynchrony__cloud_rule_args='{"buffer": 4}')
