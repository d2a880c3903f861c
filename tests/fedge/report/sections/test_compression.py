"""The section on compressed uploads: of folders by hand, and of a run whose bytes are counted again."""

import pytest
from run_folders import round_result, write_run
from small_runs import carry_out, small_config

from fedge import load_run
from fedge.report.html.svg import figure_style
from fedge.report.run_page import run_page
from fedge.report.sections.compression import compression_sections

CODES = {
    "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "hierarchy.num-servers": 2,
    "uplink.clients": "sign", "uplink.servers": "int8",
}  # fmt: skip


def rows(run):
    (section,) = compression_sections(run)
    return section.text, [tuple(row) for row in section.panels[0].table.rows]


def test_sizes_before_and_after_tier_by_tier(tmp_path):
    sizes = {"clients": {"model_bytes": 64_000, "sent_bytes": 2_000}}
    sizes |= {"servers": {"model_bytes": 64_000, "sent_bytes": 16_000}}
    folder = write_run(
        tmp_path / "run", [round_result(n, [5] * 4) for n in (1, 2)], config=CODES, uplink=sizes
    )
    assert rows(load_run(folder)) == (
        [
            "Uploads are compressed updates, by sign from clients and int8 from servers; downloads are whole "
            "models."
        ],
        [
            ("client to leaf", "sign", "64.0 kB", "2.0 kB", "32.0", "2.0 kB"),
            ("server to the one above", "int8", "64.0 kB", "16.0 kB", "4.0", "200 B"),
        ],
    )


def test_a_tier_without_a_code_is_there_and_old_folders_lack_sizes(tmp_path):
    config = {**CODES, "uplink.servers": "none"}
    text, (clients, servers) = rows(
        load_run(write_run(tmp_path / "run", [round_result(1, [5] * 4)], config=config))
    )
    assert text == ["Uploads are compressed updates, by sign from clients; downloads are whole models."]
    assert clients[1:5] == ("sign", "–", "–", "–")
    assert servers[1:5] == ("none", "–", "–", "–")


def test_a_run_without_compression_has_no_section(tmp_path):
    assert compression_sections(load_run(write_run(tmp_path / "run", [round_result(1, [5] * 4)]))) == []


@pytest.mark.whole_runs
def test_sizes_of_a_run_are_those_counted_in_its_rounds(tmp_path):
    """Every client uploads once per leaf round, and every leaf once per round."""
    config = small_config(tmp_path) | CODES | {"num-server-rounds": 2}
    carry_out(config, "packed")
    run = load_run(tmp_path / "runs" / "packed")
    clients, servers = (run.manifest["uplink"][tier]["sent_bytes"] for tier in ("clients", "servers"))
    uploads = run.clients["asked"].sum()
    assert run.rounds["uplink_bytes"].sum() == uploads * clients
    assert run.rounds["cloud_uplink_bytes"].sum() == 2 * len(run.leaves["leaf"].unique()) * servers
    with figure_style():
        assert "Compression" in [section.title for section in run_page(run).sections]
