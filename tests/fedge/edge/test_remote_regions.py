"""Regions that may work alone: which, when, and with what; whole runs: test_subtrees."""

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from fedge.cloud.region import all_regions, servers_over
from fedge.config.flat import from_run_config
from fedge.edge.remote_regions import RegionsAway
from fedge.leaf.leaf import Leaf
from fedge.link.frames import Packet
from fedge.rounds.measurements.requests import Requests

PLAIN = {
    "hierarchy.tree": "2x2x2x1", "hierarchy.region-rounds": "2,3", "hierarchy.leaf-rounds": 2,
    "cluster.enabled": False, "gate.enabled": False,
}  # fmt: skip
TOP, BELOW = [(0,), (1,)], [(0, 0), (0, 1), (1, 0), (1, 1)]


def away(one_process=lambda leaves: True, own_layers=(), **options):
    """Regions of a tree of depth 4 with eight leaves, and what is asked of a process."""
    config = from_run_config({**PLAIN, **options})
    levels = config.scaffold.levels if config.scaffold.enabled else 0
    leaves = [Leaf(i, {i: 10}, {"w": np.zeros(1, np.float32)}, ["w"], FedAvg(), levels) for i in range(8)]
    branches = servers_over(config, leaves, own_layers)
    return RegionsAway(config, all_regions(branches), own_layers, one_process), leaves


def begun(regions, leaf_round, wanted=None):
    """Paths of regions that begin to work alone, with their leaf rounds."""
    spans = regions.begin(leaf_round, wanted or Requests())
    return [(span.region.path, span.first, span.last) for span in spans]


def test_an_upper_region_takes_those_below_with_it_for_a_round_of_the_cloud():
    """12 leaf rounds a global round: 2 in a round of a lower region, of which 3 make one of an upper one."""
    regions, leaves = away()
    assert begun(regions, 1) == [(path, 1, 12) for path in TOP]
    assert [span.linked_leaf for span in regions.spans] == [0, 4]
    assert regions.span_of(leaves[5]).leaves == leaves[4:]
    assert begun(regions, 7) == []
    assert all(regions.has_combined(region) for region in regions._candidates)
    assert begun(regions, 13) == [(path, 13, 24) for path in TOP]


def test_where_the_upper_ones_are_spread_over_processes_lower_ones_work_alone():
    """Leaves 4 to 7 are two processes, leaves 0 to 3 one a leaf."""
    regions, leaves = away(lambda leaves: leaves in ([4, 5], [6, 7]))
    assert begun(regions, 1) == [((1, 0), 1, 6), ((1, 1), 1, 6)]
    assert regions.span_of(leaves[0]) is None
    there = {region.path: regions.has_combined(region) for region in regions._candidates}
    assert there == {path: path in ((1, 0), (1, 1)) for path in [*TOP, *BELOW]}
    assert begun(regions, 4) == []
    assert begun(regions, 7) == [((1, 0), 7, 12), ((1, 1), 7, 12)]


def test_regions_of_one_round_work_alone_for_its_leaf_rounds_and_the_cloud_takes_their_means():
    """The leaves' models are parts of the mean above; with one leaf round, single orders say as much."""
    regions, _ = away(**{"hierarchy.region-rounds": "1"})
    assert begun(regions, 1) == [(path, 1, 2) for path in TOP]
    assert begun(regions, 2) == []
    assert not any(regions.has_combined(region) for region in regions._candidates)
    assert begun(regions, 3) == [(path, 3, 4) for path in TOP]
    assert begun(away(**{"hierarchy.region-rounds": "1", "hierarchy.leaf-rounds": 1})[0], 1) == []


def test_an_upper_region_of_one_round_leaves_the_lower_ones_alone_with_theirs():
    regions, _ = away(**{"hierarchy.region-rounds": "1,3"})
    assert begun(regions, 1) == [(path, 1, 6) for path in BELOW]
    assert all(regions.has_combined(region) is (region.path in BELOW) for region in regions._candidates)


def test_an_upper_region_of_several_rounds_has_combined_the_lower_ones_of_one():
    regions, _ = away(**{"hierarchy.region-rounds": "3,1"})
    assert begun(regions, 1) == [(path, 1, 6) for path in TOP]
    assert all(regions.has_combined(region) for region in regions._candidates)


def test_a_region_that_brings_its_leaves_moves_them_and_the_cloud_takes_the_mean():
    """Of four leaves one has moved, to 4: the means of it and its sibling, and of all, are 2 and 1."""
    regions, leaves = away(**{"hierarchy.region-rounds": "1"})
    span = regions.begin(1, Requests())[0]
    _, kept = leaves[0].round_states()
    facts = {"leaves": [[0, 2, kept], *([leaf, 0, kept] for leaf in (1, 2, 3))]}
    states = {f"{leaf}/control": {"w": np.zeros(1)} for leaf in range(4)}
    span.answer = Packet("done", facts, {"0/model": {"w": np.full(1, 4, np.float32)}, **states})
    assert span.move(lambda state: state) == {0: 2, 1: 0, 2: 0, 3: 0}
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [4] + [0] * 7
    lower, _, upper = all_regions([span.region])
    lower.combine(1, lambda state: state)
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [2, 2] + [0] * 6
    upper.below[1].combine(1, lambda state: state)
    upper.combine(1, lambda state: state)
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [1] * 4 + [0] * 4


@pytest.mark.parametrize(
    "options",
    [
        {"scaffold.levels": 2},
        {"cluster.enabled": True, "cluster.tiers": "2"},
        {"gate.enabled": True, "gate.tiers": "2"},
        {"cloud.rule": "fedavgm", "cloud.rule-tiers": "2", "scaffold.enabled": False},
        {"own_layers": ("w",)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_needs_the_cloud_in_every_leaf_round_stays_there(options):
    assert begun(away(**options)[0], 1) == []


def test_a_gate_at_the_upper_tier_leaves_the_lower_ones_alone():
    regions, _ = away(**{"gate.enabled": True, "gate.tiers": "1"})
    assert begun(regions, 1) == [(path, 1, 6) for path in BELOW]


def test_a_span_does_not_begin_where_more_than_models_is_wanted():
    """Folds of leaf 2, the first of region 0.1, keep that one and region 0 there."""
    regions, _ = away()
    assert begun(regions, 1, Requests(alone=frozenset({2}))) == [((1,), 1, 12), ((0, 0), 1, 6)]
    assert begun(away()[0], 1, Requests(dispersion=True)) == []


def test_a_line_beside_and_a_model_of_ones_own_keep_a_region_there():
    regions, leaves = away()
    leaves[0].models.take_tentatively({"w": np.ones(1, np.float32)})
    assert [path for path, *_ in begun(regions, 1)] == [(1,), (0, 1)]
    equal, leaves = away()
    leaves[0].models.begin({"w": np.zeros(1, np.float32)})  # as after a resume
    assert [path for path, *_ in begun(equal, 1)] == TOP
