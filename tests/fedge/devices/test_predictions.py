"""Outlook of a run, by hand; deadlines that nobody meets; runs without a model."""

import re

import numpy as np
import pytest
from virtual_world import carried_out, config_of

from fedge.config.registers.option import ConfigError
from fedge.devices.clients.results import Population
from fedge.devices.population.availability import FOREVER_US
from fedge.devices.population.fleet import Fleet
from fedge.devices.predictions import (
    jobs_expected,
    refuse_absent_devices,
    refuse_impossible_times,
    unchanged_model_advice,
)

NOTHING, ENDLESS = np.zeros(4), np.full(4, np.inf)
FLEET = Fleet(NOTHING, np.array([1.0, 3.0, 4.0, 0.1]), np.full(4, 100.0), ENDLESS, NOTHING, NOTHING)
WHO = Population({0: 0, 1: 0, 2: 1, 3: 1}, {0: 5, 1: 5, 2: 5}, frozenset({3}), 2)  # device 3 holds nobody


def test_jobs_expected_by_hand():
    """A model takes 1 s: leaf 0 has places for both its devices, of 2 and 4 s, leaf 1 for its own; 30 s."""
    config = config_of(asynchrony__concurrency=3, hierarchy__num_servers=2)
    assert jobs_expected(FLEET, WHO, config, 100) == round(30 * (1 / 2 + 1 / 4 + 1 / 5))


def test_quick_devices_have_more_jobs_where_most_are_at_work():
    """Of jobs of 1 and 3 s, one place: 1/(1 + g) + 3/(3 + g) = 1 for g = √3."""
    who = Population({0: 0, 1: 0}, {0: 1, 1: 1}, frozenset(), 1)
    fleet = Fleet(NOTHING[:2], np.array([1.0, 3.0]), ENDLESS[:2], ENDLESS[:2], NOTHING[:2], NOTHING[:2])
    config = config_of(asynchrony__concurrency=1, asynchrony__evaluate_every_s=1000.0)
    assert jobs_expected(fleet, who, config, 100) == round(3000 * (1 / (1 + 3**0.5) + 1 / (3 + 3**0.5)))


def test_as_many_jobs_as_expected_end():
    config = config_of(asynchrony__concurrency=6, asynchrony__evaluate_every_s=4.0)
    fleet = Fleet(
        np.zeros(12), np.linspace(0.1, 0.6, 12), *np.full((2, 12), np.inf), *np.zeros((2, 12)), "half-normal"
    )
    procedure, _ = carried_out(config, 12, fleet=fleet)
    who = Population(dict.fromkeys(range(12), 0), dict.fromkeys(range(12), 4), frozenset(), 1)
    assert procedure.ledger.total("jobs") == pytest.approx(jobs_expected(fleet, who, config, 16), rel=0.1)


def test_a_deadline_that_nobody_meets_is_refused():
    """The quickest that trains takes 1 + 1 s."""
    words = r"must leave the quickest device time for a job, 2 virtual s, but is 1\.9; raise it"
    for rule, name in (("fedavg", "deadline"), ("fedbuff", "timeout")):
        with pytest.raises(ConfigError, match=f"asynchrony.{name}-s {words}"):
            refuse_impossible_times(FLEET, WHO, limited(rule, name, 1.9), 100)
        for enough in (2.0, 0.0):
            refuse_impossible_times(FLEET, WHO, limited(rule, name, enough), 100)
    refuse_impossible_times(
        FLEET, WHO, limited("fedavg", "timeout", 1.9), 100
    )  # rounds have a deadline alone


def limited(rule, name, seconds):
    """A configuration whose jobs are given up after so long."""
    return config_of(asynchrony__rule=rule, **{f"asynchrony__{name}_s": seconds})


def test_jobs_below_a_microsecond_are_refused():
    """Device 1 takes 5 windows of 1e-8 s; virtual time would hardly go on."""
    fleet = Fleet(np.full(4, 1e-8), np.array([1.0, 0.0, 1.0, 0.0]), ENDLESS, ENDLESS, NOTHING, NOTHING)
    words = "devices.preset lognormal must make jobs take a microsecond, .* those of device 1 take 5e-08 s"
    with pytest.raises(ConfigError, match=words):
        refuse_impossible_times(fleet, WHO, config_of(train__local_epochs=1), 100)


@pytest.mark.parametrize(
    ("presence", "words"),
    [
        (lambda device, now_us: (False, FOREVER_US), "none ever is"),
        (lambda device, now_us: (False, (40 - device) * 10**6), "the first is at 38 s"),
        (lambda device, now_us: (device == 3, FOREVER_US), "none ever is"),  # it holds nobody who trains
        (lambda device, now_us: (False, (31 - device) * 10**6), None),
        (lambda device, now_us: (device == 1, FOREVER_US), None),
    ],
    ids=["never", "late", "unseen", "in time", "one"],
)
def test_a_fleet_in_which_nobody_is_there_is_refused(presence, words):
    """A run of 30 virtual seconds."""
    if words is None:
        refuse_absent_devices(WHO, config_of(), presence)
        return
    told = f"must make a device available before the run ends, at 30 virtual s, but {words}; lengthen"
    with pytest.raises(ConfigError, match=told):
        refuse_absent_devices(WHO, config_of(), presence)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"devices__preset_args": '{"seconds": 1000}'}, "0 jobs ended, 0 of them .*lengthen the run"),
        ({"asynchrony__rule_args": '{"buffer": 9000}'}, "lower the buffer in asynchrony.rule-args"),
        ({"hierarchy__num_servers": 2, "asynchrony__cloud_every": 9000}, r"lower asynchrony\.cloud-every"),
        ({"devices__selection": f"{__name__}:nobody"}, "0 jobs ended, .*change devices.selection"),
        ({}, None),
    ],
    ids=["slow", "buffer", "cloud", "selection", "made"],
)
def test_a_run_that_made_no_model_says_what_helps(changes, words):
    config = config_of(
        **{"asynchrony__rule_args": '{"buffer": 1}', "asynchrony__concurrency": 4, "devices__preset": "equal",
           "asynchrony__evaluate_every_s": 2.0, "num_server_rounds": 1, **changes}
    )  # fmt: skip
    procedure, _ = carried_out(config, 8)
    remark = unchanged_model_advice(procedure)
    assert remark is None if words is None else re.search(words, remark)


def nobody(there, history, turn):
    """A selection that gives no device work."""
    return
