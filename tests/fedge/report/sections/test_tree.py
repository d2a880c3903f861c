"""The tree of servers of a run's folder: rows by hand."""

from dataclasses import replace

import polars as pl
import pytest
from small_runs import carry_out, small_config

from fedge import load_run
from fedge.report.html.tree import MOST_BELOW
from fedge.report.sections.tree import tree_sections


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    carry_out({**small_config(folder), "num-server-rounds": 1}, "flat")
    return load_run(folder / "runs" / "flat")


def row(path, score, cluster=None, gate=None, number=2):
    tier = 0 if path == "/" else path.count("/")
    sizes = (None, None) if tier == 0 else (2_000_000, 4_000_000)
    return {
        "global_round": number, "path": path, "tier": tier, "name": ["cloud", "region", "leaf"][tier],
        "cluster": cluster, "gate": gate, "uplink_bytes": sizes[0], "downlink_bytes": sizes[1],
        "num_clients": 3, "train_samples": 30, "test_score": score, "unseen_score": None,
    }  # fmt: skip


def drawn(run, rows):
    frame = pl.DataFrame(rows, schema=run.servers.schema)
    (section,) = tree_sections(replace(run, servers=frame))
    return section.text, section.panels[0].tree


def test_servers_stand_below_their_own_with_what_happened_there(run):
    rows = [
        row("/", 0.6), row("/0", 0.7, 0, "rejected"), row("/0/0", 0.8, 0, "accepted"),
        row("/0/1", 0.6, 1, "off"),
        row("/1", 0.5, 0, "accepted"), row("/1/0", 0.5, 0),
    ]  # fmt: skip
    text, tree = drawn(run, [row("/", 0.1, number=1), *rows])
    assert text == ["Cloud over 2 regions over 3 leaves."]
    assert (tree.name, tree.value, tree.share) == ("cloud", "0.6000", 0.6)
    first, second = tree.below
    assert [branch.name for branch in first.below] == ["leaf 0/0", "leaf 0/1"]
    assert [branch.cluster for branch in (first, *first.below, *second.below)] == [None, 0, 1, None]
    assert first.marks == ["kept its own model", "3 clients", "↑ 2.0 MB ↓ 4.0 MB"]
    assert first.below[0].marks[:2] == ["cluster 0", "took its offer"]


@pytest.mark.parametrize(
    ("up", "down", "marks"),
    [
        (2000, None, ["3 clients", "↑ 2.0 kB"]),
        (None, 500, ["3 clients", "↓ 500 B"]),
        (None, None, ["3 clients"]),
    ],
)
def test_what_was_sent_in_one_direction_alone_is_drawn(run, up, down, marks):
    """On the virtual clock an answer may be under way at an evaluation: no report was written."""
    sent = {"uplink_bytes": up, "downlink_bytes": down}
    _, tree = drawn(run, [row("/", 0.6), row("/0", 0.7, 0) | sent, row("/1", 0.5, 0)])
    assert tree.below[0].marks == marks


def test_of_very_many_servers_the_worst_are_drawn(run):
    rows = [row("/", 0.6), *(row(f"/{n}", 0.5 + n / 1000, 0) for n in reversed(range(MOST_BELOW + 7)))]
    _, tree = drawn(run, rows)
    assert len(tree.below) == MOST_BELOW
    assert tree.below[-1].value == "0.5000"
    assert tree.left_out == "and 7 others, which are no worse, 0.5400 to 0.5460"


def test_the_newest_round_with_scores_is_drawn(run):
    rows = [row(path, score, number=1) for path, score in (("/", 0.6), ("/0", 0.7), ("/1", 0.5))]
    rows += [row(path, None, number=2) for path in ("/", "/0", "/1")]
    _, tree = drawn(run, rows)
    assert tree.value == "0.6000"


def test_a_single_leaf_has_no_tree(run):
    rows = pl.DataFrame([row("/", 0.6), row("/0", 0.6)], schema=run.servers.schema)
    assert tree_sections(replace(run, servers=rows)) == []


def test_new_groupings_of_regions_are_listed(run):
    """Region 0 groups its children in rounds 1 and 2 of its own alike, then otherwise; region 1 once."""
    steps = [("/0", 1, 1, [0, 0, 1], []), ("/1", 1, 1, [0, 1, 1], []), ("/0", 1, 2, [0, 0, 1], []),
             ("/0", 2, 3, [0, 1, 1], ["leaves moved: 1"])]  # fmt: skip
    frame = pl.DataFrame(
        [
            dict(zip(("server", "global_round", "server_round", "labels", "changes"), step, strict=True))
            for step in steps
        ]
    )
    rows = [row("/", 0.6), row("/0", 0.7, 0), row("/0/0", 0.8, 0), row("/0/1", 0.6, 1), row("/1", 0.5, 0)]
    servers = pl.DataFrame(rows, schema=run.servers.schema)
    (section,) = tree_sections(replace(run, servers=servers, inner_clusters=frame))
    assert [tuple(cells) for cells in section.panels[1].table.rows] == [
        ("region 0", "1", "1", "{0 1}  {2}", "–"),
        ("region 1", "1", "1", "{0}  {1 2}", "–"),
        ("region 0", "2", "3", "{0}  {1 2}", "leaves moved: 1"),
    ]
    assert section.panels[1].caption.startswith("4 steps of 2 servers")
