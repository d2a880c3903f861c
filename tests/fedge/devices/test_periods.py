"""Rows of moments."""

from virtual_world import carried_out, config_of

from fedge.devices.periods import moment


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
