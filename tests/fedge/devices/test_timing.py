"""A clock without training: who works when is what it is where clients train."""

from dataclasses import replace

import pytest
from virtual_world import WINDOWS, carried_out, config_of

from fedge.config.registers.option import ConfigError
from fedge.devices.timing import TimedFleet, build_timed_run

BYTES = 16  # of the model of `virtual_world`: two numbers and a counter


def clocked(config, devices, seed=3):
    rows = []
    procedure = build_timed_run(config, seed, TimedFleet(devices, WINDOWS, BYTES), rows.append)
    procedure.begin()
    procedure.run_until(config.num_server_rounds)
    return procedure, rows


@pytest.mark.parametrize(
    ("devices", "changes"),
    [
        (8, {"asynchrony__concurrency": 4, "asynchrony__rule_args": '{"buffer": 2}'}),
        (9, {
            "asynchrony__concurrency": 6, "asynchrony__rule": "fedavg", "asynchrony__over_selection": 1.5,
            "devices__dropout": 0.3,
        }),
        (8, {
            "asynchrony__concurrency": 4, "hierarchy__num_servers": 2, "asynchrony__cloud_delay_s": 0.3,
            "asynchrony__rule_args": '{"buffer": 2}', "devices__availability": "markov",
            "devices__availability_args": '{"on_s": 3.0, "off_s": 1.0}',
        }),
        (8, {"asynchrony__concurrency": 3, "asynchrony__refill": 2, "train__local_steps": "auto"}),
        (8, {
            "asynchrony__concurrency": 4, "asynchrony__leaf_link_megabytes_s": 50e-6, "devices__dropout": 0.2,
            "asynchrony__timeout_s": 1.5,
        }),
        (8, {"asynchrony__concurrency": 3, "asynchrony__timeout_s": 0.8, "asynchrony__rule": "fedasync"}),
        (8, {
            "asynchrony__concurrency": 3, "asynchrony__timeout_s": 0.4, "asynchrony__rule": "fedasync",
            "devices__partial_work": True, "train__batch_size": 1,
        }),
    ],
)  # fmt: skip
def test_it_is_the_clock_of_a_run_that_trains(devices, changes):
    """The same jobs, fates, staleness, bytes and versions; users play no part in these devices' times."""
    config = config_of(devices__preset="half-normal", asynchrony__evaluate_every_s=2.0, **changes)
    steps = replace(config, train=replace(config.train, local_steps=1))  # what "auto" is where all are alike
    trained, noted = carried_out(steps if config.train.local_steps else config, devices)
    procedure, rows = clocked(config, devices)
    assert procedure.ledger.staleness == trained.ledger.staleness
    assert procedure.ledger.moved == trained.ledger.moved
    for name, counts in trained.ledger.counts.items():
        assert procedure.ledger.counts[name].tolist() == counts.tolist()
    assert [row.version for row in rows] == [row.version for row in noted.rows]
    assert [row.cloud_staleness for row in rows] == [row.cloud_staleness for row in noted.rows]
    assert procedure.clock.events == trained.clock.events


def test_it_ends_where_a_run_would():
    config = config_of(
        devices__preset="half-normal", asynchrony__concurrency=4, asynchrony__rule_args='{"buffer": 2}',
        asynchrony__end_versions=2, asynchrony__evaluate_every_s=100.0,
    )  # fmt: skip
    procedure, rows = clocked(config, 8)
    assert procedure.versions == rows[-1].version == 2
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"asynchrony__rule": "fedrevive"}, "generates windows from trained models"),
        (
            {"asynchrony__concurrency": 9},
            "and it has 8; set asynchrony.concurrency=8, or more",
        ),
    ],
)
def test_what_cannot_be_timed_is_refused_in_one_line(changes, words):
    with pytest.raises(ConfigError, match=words):
        clocked(config_of(**{"asynchrony__concurrency": 4, **changes}), 8)


def test_nobody_times_reality():
    config = config_of(asynchrony__concurrency=2, asynchrony__clock="real")
    with pytest.raises(ConfigError, match="fedge clock needs the virtual clock"):
        build_timed_run(config, 3, TimedFleet(4, WINDOWS, BYTES), print)
