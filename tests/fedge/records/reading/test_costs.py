"""Costs by the end of every round, of rounds that devices take and of others."""

from dataclasses import replace

import polars as pl
from run_folders import round_result, write_run

from fedge.records.reading.costs import bytes_so_far, joules, virtual_seconds
from fedge.records.reading.reader import load_run


def timed(number, **facts):
    """A round of devices."""
    return replace(round_result(number, [5, 6, 7, 8]), **facts)


def test_costs_of_rounds_that_devices_take(tmp_path):
    rounds = [timed(n, virtual_s=2.5 * n, joules=4.0 * n) for n in (1, 2)]
    run = load_run(write_run(tmp_path / "a", rounds))
    assert virtual_seconds(run).to_list() == [2.5, 5.0]
    assert joules(run).to_list() == [4.0, 8.0]
    assert bytes_so_far(run.rounds).to_list() == [3300, 6600]


def test_energy_that_is_not_known(tmp_path):
    run = load_run(write_run(tmp_path / "a", [timed(1, virtual_s=2.5)]))
    assert (virtual_seconds(run).to_list(), joules(run)) == ([2.5], None)


def test_rounds_in_real_time_have_neither(tmp_path):
    run = load_run(write_run(tmp_path / "a", [round_result(1, [5, 6, 7, 8])]))
    assert (virtual_seconds(run), joules(run)) == (None, None)


def test_on_the_virtual_clock_evaluations_count(tmp_path):
    """Three evaluations are written, two rounds so far."""
    run = load_run(write_run(tmp_path / "a", [round_result(n, [5, 6, 7, 8]) for n in (1, 2)]))
    versions = pl.DataFrame({"virtual_s": [1.0, 2.0, 3.0], "joules": [0.5, 0.75, None]})
    on_clock = replace(run, versions=versions)
    assert virtual_seconds(on_clock).to_list() == [1.0, 2.0]
    assert joules(on_clock).to_list() == [0.5, 0.75]
