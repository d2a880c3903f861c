"""Rows of moments."""

import numpy as np
import pytest
from virtual_world import carried_out, config_of

from fedge.devices.periods import moment, releases
from fedge.devices.population.fleet import Fleet


def test_the_row_of_a_moment():
    """Two leaves of two devices and a place each, jobs of a second, exchanges without delay."""
    config = config_of(
        asynchrony__rule_args='{"buffer": 1}', asynchrony__concurrency=2, devices__preset="equal",
        asynchrony__evaluate_every_s=2.5, hierarchy__num_servers=2, asynchrony__cloud_delay_s=0.0,
        num_server_rounds=2,
    )  # fmt: skip
    procedure, noted = carried_out(config, 4)
    row = noted.rows[-1]
    assert (row.virtual_s, row.updates, row.jobs, row.leaf_versions, row.version) == (5.0, 10, 10, 10, 10)
    assert row.cloud_staleness == 0.9  # the other leaf's version is always between, but for the very first
    assert (row.at_work, row.utilisation, row.joules) == (0, 1.0, None)
    assert (row.cloud_busy, row.cloud_in_line) == (0, 0)
    assert noted.rows[0].at_work == 2
    again = moment(procedure)
    assert (again.seen_score, again.updates) == (None, 10)


@pytest.mark.parametrize("link", [0.0, 1e-6])
def test_devices_in_the_middle_of_a_job_are_busy(link):
    """Of a job begun at 2 s, the half until the end at 2.5 s counted as idle time."""
    config = config_of(
        asynchrony__rule_args='{"buffer": 1}', asynchrony__concurrency=2, devices__preset="equal",
        asynchrony__evaluate_every_s=2.5, num_server_rounds=1, asynchrony__leaf_link_megabytes_s=link,
    )  # fmt: skip
    procedure, noted = carried_out(config, 4)
    population, now_us = procedure.world.population, procedure.clock.now_us
    rows = procedure.ledger.devices(now_us, population.leaf_of, population.windows, procedure.unrecorded_us)
    assert noted.rows[-1].at_work == 2
    assert sum(row.busy_s for row in rows) == pytest.approx(noted.rows[-1].utilisation * 2 * 2.5)
    assert [row.busy_s + row.idle_s for row in rows] == [2.5] * 4


@pytest.mark.parametrize(("until_s", "begun"), [(0.9, 0), (1.0, 1), (1.4, 1), (1.6, 1), (3.9, 2), (4.1, 3)])
def test_an_update_lost_on_its_way_has_been_sent(until_s, begun):
    """Training and upload take a second each, after 1.5 s a job is given up: nothing ever comes whole.

    Uploads begin at 1, 2.5 and 4 s; with `local` each costs the device a release of its own noise.
    """
    one, nothing, endless = np.ones(2), np.zeros(2), np.full(2, np.inf)
    config = config_of(
        privacy__kind="local", train__model="linear", asynchrony__concurrency=2, num_server_rounds=1,
        asynchrony__timeout_s=1.5, asynchrony__evaluate_every_s=until_s,
        asynchrony__rule_args='{"buffer": 1}',
    )  # fmt: skip
    procedure, _ = carried_out(config, 2, fleet=Fleet(nothing, one, endless, endless, nothing, one))
    assert procedure.ledger.taken == 0
    assert releases(procedure) == begun


def test_a_reply_that_comes_too_late_for_its_round_has_been_sent():
    """All three come back at the same moment, two are waited for; with five rounds everybody sends five."""
    config = config_of(
        privacy__kind="local", train__model="linear", asynchrony__rule="fedavg", asynchrony__concurrency=3,
        asynchrony__over_selection=1.5, devices__preset="equal", asynchrony__evaluate_every_s=5.0,
        num_server_rounds=1,
    )  # fmt: skip
    procedure, _ = carried_out(config, 3)
    assert procedure.ledger.counts["late"].tolist() == [0, 0, 5]
    assert procedure.ledger.counts["uploads"].tolist() == [5, 5, 5]
