"""What becomes of a job, by hand: it ends by the first that happens to it."""

import numpy as np
import pytest
from virtual_world import START, config_of

from fedge.devices.availability import FOREVER_US
from fedge.devices.fleet import Fleet
from fedge.devices.planning import Planning
from fedge.devices.rules import fedbuff
from fedge.devices.server import Server
from fedge.devices.vectors import version_of

ONE, ENDLESS = np.ones(1), np.full(1, np.inf)
FLEET = Fleet(0.5 * ONE, 0 * ONE, 100.0 * ONE, ENDLESS, 0 * ONE, 0.25 * ONE)


def job(until_us=FOREVER_US, **options):
    """The first job of a device with 4 windows, begun at 7 s; the model of 200 bytes comes in 2 s."""
    planning = Planning(config_of(train__local_epochs=1, **options), 3, FLEET, np.array([4]), 200)
    server = Server(version_of(START), fedbuff, {}, 1)
    return planning.job(0, 0, 1, 7_000_000, until_us, 2, server)


def test_a_job_that_trains():
    found = job()
    assert (found.fate, found.end_us, found.there_us, found.trained_us) == (
        "trains", 11_250_000, 9_000_000, 11_000_000,
    )  # fmt: skip
    assert (found.busy_us, found.train_us) == (4_250_000, 2_000_000)
    assert (found.number, found.attempt, found.period, found.staleness_from) == (1, 1, 2, 0)


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


def test_a_dropout_ends_it_on_the_way():
    found = job(devices__dropout=0.99)
    assert found.fate == "dropped"
    assert 7_000_000 < found.end_us < 11_250_000
