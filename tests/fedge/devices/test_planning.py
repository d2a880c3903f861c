"""Ends of jobs, by hand: the first event that ends a job counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_world import START, config_of

from fedge.devices.planning import JobStart, Planning, cut_short, steps_of_jobs
from fedge.devices.population.availability import FOREVER_US
from fedge.devices.population.fleet import Fleet
from fedge.devices.servers.rules import fedbuff
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import version_of

ONE, ENDLESS = np.ones(1), np.full(1, np.inf)
FLEET = Fleet(0.5 * ONE, 0 * ONE, 100.0 * ONE, ENDLESS, 0 * ONE, 0.25 * ONE)


def job(until_us=FOREVER_US, **options):
    """The first job of a device with 4 windows, begun at 7 s; the model of 200 bytes comes in 2 s."""
    planning = Planning(config_of(train__local_epochs=1, **options), 3, FLEET, np.array([4]), 200)
    server = DeviceServer(version_of(START), fedbuff, {}, 1)
    return planning.job(JobStart(0, 0, 1, 7_000_000, until_us, 2, server))


def test_a_job_that_trains():
    found = job()
    assert (found.fate, found.end_us, found.there_us, found.trained_us) == (
        "trains", 11_250_000, 9_000_000, 11_000_000,
    )  # fmt: skip
    assert (found.busy_us, found.train_us) == (4_250_000, 2_000_000)
    assert (found.number, found.attempt, found.period, found.staleness_from) == (1, 1, 2, 0)


def test_a_job_over_a_shared_link_sends_back_what_it_says():
    """At 100 bytes a second either way: 2 s until the model is there, 0.5 s back for 50 bytes."""
    config = config_of(train__local_epochs=1, asynchrony__leaf_link_megabytes_s=1e-4)
    planning = Planning(config, 3, FLEET, np.array([4]), 200, up_bytes=50)
    server = DeviceServer(version_of(START), fedbuff, {}, 1)
    _, route = planning.routed(JobStart(0, 0, 1, 7_000_000, FOREVER_US, 2, server))
    assert (route.train_us, route.up_us, route.back_us) == (2_000_000, 250_000, 500_000)


@pytest.mark.parametrize(
    ("until_us", "options", "fate", "end_us", "train_us"),
    [
        (8_000_000, {}, "away", 8_000_000, 0),
        (FOREVER_US, {"asynchrony__timeout_s": 3.0}, "late", 10_000_000, 1_000_000),
        (8_000_000, {"asynchrony__timeout_s": 3.0}, "away", 8_000_000, 0),
        (10_500_000, {"asynchrony__timeout_s": 3.0}, "late", 10_000_000, 1_000_000),
        (FOREVER_US, {"asynchrony__timeout_s": 4.25}, "trains", 11_250_000, 2_000_000),
    ],
)
def test_the_first_that_happens_ends_it(until_us, options, fate, end_us, train_us):
    found = job(until_us, **options)
    assert (found.fate, found.end_us, found.train_us) == (fate, end_us, train_us)


CUT = {"devices__partial_work": True, "train__batch_size": 1}  # four steps of half a second


@pytest.mark.parametrize(
    ("until_us", "options", "steps", "end_us"),
    [
        # 3.0 s from the beginning: 2 s until the model is there, 0.25 s back, so 0.75 s for steps: one
        (FOREVER_US, {"asynchrony__timeout_s": 3.0}, 1, 9_750_000),
        # it goes at 10.75 s: 9 s + three steps + 0.25 s is just in time
        (10_750_000, {}, 3, 10_750_000),
        (10_749_999, {}, 2, 10_250_000),
        (10_750_000, {"asynchrony__timeout_s": 3.0}, 1, 9_750_000),
        (FOREVER_US, {"asynchrony__rule": "fedavg", "asynchrony__deadline_s": 3.3}, 2, 10_250_000),
    ],
)
def test_one_that_is_cut_short_sends_what_it_has_in_time(until_us, options, steps, end_us):
    found = job(until_us, **CUT, **options)
    assert (found.fate, found.steps, found.of_steps, found.end_us) == ("trains", steps, 4, end_us)
    assert found.trained_us == 9_000_000 + steps * 500_000
    assert found.share == steps / 4


def test_one_that_has_not_done_a_step_in_time_is_lost():
    found = job(9_749_999, **CUT)
    assert (found.fate, found.steps, found.of_steps, found.share) == ("away", 0, 0, 1.0)


def test_one_that_is_in_time_is_whole():
    found = job(11_250_000, **CUT)
    assert (found.fate, found.steps, found.share) == ("trains", 0, 1.0)


@given(
    st.integers(0, 999), st.integers(0, 999), st.integers(0, 999), st.integers(0, 2999), st.integers(1, 50)
)
def test_what_is_cut_short_is_in_time_and_one_step_more_is_not(there, training, back, most, steps):
    whole = there + training + back
    if most >= whole:
        return
    done, trained = cut_short(there, there + training, whole, most, steps)
    assert 0 <= done < steps
    if done:
        assert trained + back <= most
        assert trained - 1 < there + training * done / steps <= trained
    assert there + training * (done + 1) / steps + back > most


def test_steps_of_jobs():
    config = config_of(train__batch_size=3, train__local_epochs=2)
    assert steps_of_jobs(np.array([0, 1, 3, 4]), config).tolist() == [0, 2, 2, 4]
    config = config_of(train__batch_size=3, train__local_steps=5)
    assert steps_of_jobs(np.array([0, 1, 9]), config).tolist() == [0, 5, 5]


def test_a_dropout_ends_it_on_the_way():
    found = job(devices__dropout=0.99)
    assert found.fate == "dropped"
    assert 7_000_000 < found.end_us < 11_250_000
