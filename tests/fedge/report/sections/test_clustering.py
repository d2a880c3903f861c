"""The section on clusters names what the cloud has compared."""

import json

import pytest
from small_runs import carry_out, small_config

from fedge import load_run
from fedge.report.sections.clustering import Children, children_of_cloud, clustering_section

TREE = {"hierarchy.tree": "3x2x*", "num-server-rounds": 2}


@pytest.mark.parametrize(
    ("options", "one", "several"),
    [
        ({}, "leaf", "leaves"),
        (TREE, "region", "regions"),
        ({**TREE, "hierarchy.names": "hq, city, hall"}, "city", "cities"),
        ({**TREE, "hierarchy.tree": "3x1x2x*"}, "region-1", "servers of region-1"),
    ],
)
def test_children_of_the_cloud_have_their_own_name(tmp_path, options, one, several):
    """Regions are not numbered as leaves: not in words, tables or curves."""
    carry_out({**small_config(tmp_path), **options}, "run")
    run = load_run(tmp_path / "runs" / "run")
    assert children_of_cloud(run) == Children(one, several)
    section = clustering_section(run)
    assert f"{several} at least" in section.text[0]
    titles = [panel.title for panel in section.panels]
    assert titles[0] == f"Cluster of each {one}"
    assert f"Similarity between {several}" in titles
    words = repr([section.text, *((panel.title, panel.table, panel.caption) for panel in section.panels)])
    assert ("leaf" in words or "leaves" in words) is (one == "leaf")
    drawn = [text.get_text() for axes in section.panels[0].figure.axes for text in axes.get_yticklabels()]
    assert drawn == [f"{one} {child}" for child in range(3)]


@pytest.mark.parametrize(("options", "what"), [({}, "leaves"), (TREE, "children")])
def test_changes_name_what_is_grouped(tmp_path, options, what):
    carry_out({**small_config(tmp_path), **options}, "run")
    folder = tmp_path / "runs" / "run"
    lines = (folder / "clusters.jsonl").read_text().splitlines()
    event = {"kind": "split", "before": [[0, 1, 2]], "after": [[0, 1], [2]]}
    told = [json.dumps({**json.loads(line), "events": [event]}) for line in lines]
    (folder / "clusters.jsonl").write_text("\n".join(told) + "\n")
    text = clustering_section(load_run(folder)).text
    assert f"Round 1: {what} {{0 1 2}} split into {{0 1}} and {{2}}." in text
