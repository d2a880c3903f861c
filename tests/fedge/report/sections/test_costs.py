"""The section on costs, and bytes tier by tier of a deeper tree, of folders and of a real run."""

from dataclasses import replace

import polars as pl
import pytest
from run_folders import round_result, write_run
from small_runs import small_config

from fedge import simulate
from fedge.records.reading.reader import load_run
from fedge.report.html.svg import figure_style
from fedge.report.run_page import run_page
from fedge.report.sections.costs import cost_sections
from fedge.report.sections.time import traffic_panel


def section_of(folder, **facts):
    """The section of a run of one round with these facts."""
    with figure_style():
        return cost_sections(load_run(write_run(folder, [replace(round_result(1, [5] * 4), **facts)])))


def test_the_score_over_each_cost_that_is_known(tmp_path):
    (both,) = section_of(tmp_path / "both", virtual_s=60.0, joules=2.5)
    assert [panel.title for panel in both.panels] == [
        f"Accuracy over {cost}" for cost in ("virtual time", "energy", "bytes")
    ]
    assert "2.5000 J" in both.text[0]
    (seconds,) = section_of(tmp_path / "seconds", virtual_s=60.0)
    assert [panel.title for panel in seconds.panels] == ["Accuracy over virtual time", "Accuracy over bytes"]
    assert section_of(tmp_path / "real") == []


@pytest.mark.whole_runs
def test_a_run_of_a_deeper_tree_has_its_costs_and_its_tiers(tmp_path):
    """Bytes between regions and cloud, and between leaves and regions, add up to those of the rounds."""
    tree = {
        "hierarchy.tree": "2x2x1",
        "gate.enabled": False,
        "cluster.enabled": False,
        "scaffold.enabled": False,
    }
    config = small_config(tmp_path, num_server_rounds=2, clients=4) | tree
    outcome = simulate(
        {**config, "devices.time-rounds": True, "devices.preset": "hierfavg", "run-name": "deep"}
    )
    run = load_run(outcome.folder)
    with figure_style():
        page, traffic = run_page(run), traffic_panel(run)
    assert "What rounds cost" in [section.title for section in page.sections]
    assert "Virtual time" in [tile.label for tile in page.tiles]
    columns = dict(zip(traffic.table.headers, zip(*traffic.table.rows, strict=True), strict=True))
    tiers = list(columns)[3:-1]
    assert tiers == ["leaf to region", "region to leaf", "region to cloud", "cloud to region"]
    servers = run.servers.filter(pl.col("tier") == 2)
    assert sum(servers["uplink_bytes"]) > 0
    above = run.rounds["cloud_uplink_bytes"].sum()
    assert (
        servers["uplink_bytes"].sum() + run.servers.filter(pl.col("tier") == 1)["uplink_bytes"].sum() == above
    )
