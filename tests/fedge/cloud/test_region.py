"""Servers between cloud and leaves: means, corrections worked out by hand, what a tree keeps."""

import numpy as np
import pytest

from fedge.cloud import control
from fedge.cloud.region import Region, all_regions, leaves_below, servers_over
from fedge.config.flat import from_run_config
from fedge.exchange.round_context import LEAF, OWN_LINE, RoundContext
from fedge.exchange.train import TrainReply
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.aggregation import mean_of
from fedge.leaf.strategies.rules import make_strategy
from fedge.rounds.measurements.book import RoundBook
from fedge.training import scaffold
from fedge.training.settings import LocalTraining

LR = 0.5


def state(value, dtype=np.float64):
    return {"w": np.array([value], dtype)}


def same(kept):
    return kept


def tree_of(gradients, levels, tree="2x2x1", samples=1, **options):
    """The cloud's children over leaves of one client each, whose gradient is the same everywhere."""
    config = from_run_config({"hierarchy.tree": tree, "scaffold.levels": levels, **options})
    strategy = make_strategy(config, 1)
    leaves = [Leaf(j, {j: samples}, state(0.0), ["w"], strategy, levels) for j in range(len(gradients))]
    return servers_over(config, leaves), leaves


def train(leaves, gradients):
    """A leaf round of one step, as clients and leaves carry it out."""
    for leaf, gradient in zip(leaves, gradients, strict=True):
        own = leaf.client_controls.get(leaf.index, state(0.0))
        correction = leaf.sent_control["w"] - own["w"]
        reply = TrainReply({"w": leaf.model["w"] - LR * (gradient + correction)}, 1, 1, 0.0, 0.0, 0)
        context = RoundContext(0, 1, 1, "", "", 0, 1.0)
        leaf.aggregate_train(context, {leaf.index: reply}, reply.state, LocalTraining(lr=LR))
        leaf.keep_states(same)


def cloud_round(branches):
    """The cloud takes the mean of its children, corrects them, and all go on from it."""
    control.record_drift_ends(branches)
    mean = mean_of(branch.contribution(1) for branch in branches)
    for branch in branches:
        branch.models.continue_with(mean)
    control.start_drifts(branches, [0] * len(branches))
    for branch in branches:
        branch.set_correction(None)
        branch.keep_states(same)
        branch.depart()


def models(leaves):
    return [float(leaf.model["w"][0]) for leaf in leaves]


def test_a_round_of_scaffold_on_three_tiers_worked_out_by_hand():
    """Gradients 1, 3 | 5, 11 under two regions; two rounds of a region in one of the cloud; η = ½, one step.

    Round 1 of the regions: leaves move to −½, −1½ | −2½, −5½, regions to −1 | −4. Leaves' drifts are
    d = 1, 3 | 5, 11, so u = 2 − d = 1, −1 and 8 − d = 3, −3. Round 2: all leaves of a region move alike, by
    −½ · 2 and −½ · 8, to −2 | −8: corrections stay. The regions have moved by −2 and −8 on drifts of length
    ½ + ½, so d = 2, 8 and v = 5 − d = 3, −3; the cloud stands at −5. Then every client steps with its
    gradient + u + v = 5, the mean over all, to −7½.
    """
    gradients = [1.0, 3.0, 5.0, 11.0]
    branches, leaves = tree_of(gradients, levels=3)
    train(leaves, gradients)
    assert models(leaves) == [-0.5, -1.5, -2.5, -5.5]
    for region in branches:
        region.combine(1, same)
    assert models(leaves) == [-1.0, -1.0, -4.0, -4.0]
    assert [float(leaf.drift.correction["w"][0]) for leaf in leaves] == [1.0, -1.0, 3.0, -3.0]
    train(leaves, gradients)
    assert models(leaves) == [-2.0, -2.0, -8.0, -8.0]
    for region in branches:
        region.combine(1, same)
    assert [region.drift.length for region in branches] == [1.0, 1.0]
    cloud_round(branches)
    assert models(leaves) == [-5.0] * 4
    assert [float(region.drift.correction["w"][0]) for region in branches] == [3.0, -3.0]
    told = [float(leaf.sent_control["w"][0] - g) for leaf, g in zip(leaves, gradients, strict=True)]
    assert told == [4.0, 2.0, 0.0, -6.0]  # u + v
    assert [float(leaf.drift.start["w"][0]) for leaf in leaves] == [-5.0] * 4
    train(leaves, gradients)
    assert models(leaves) == [-7.5] * 4


GROUPING = {"cluster.tiers": "1", "cluster.every": 2, "gate.enabled": False}


def round_without_step(branches, leaves, gradients):
    """A round of regions that group every second time, and of the cloud, without a step of either."""
    train(leaves, gradients)
    for region in branches:
        region.gather(1, same)
        region.models.continue_with_own()
    for region in branches:
        region.depart()


def test_drifts_go_on_through_rounds_without_a_step():
    """Gradients 1, 3 | 5, 11; two leaf rounds of η = ½ and one step: leaves move from 0 to −1, −3 | −5, −11,
    regions to −2 | −8, on drifts of length 1. So u = 2 − d = 1, −1 | 3, −3 and v = 5 − d = 3, −3."""
    gradients = [1.0, 3.0, 5.0, 11.0]
    branches, leaves = tree_of(gradients, 3, **GROUPING)
    assert branches[0].is_apart
    for _ in range(2):
        round_without_step(branches, leaves, gradients)
    assert models(leaves) == [-1.0, -3.0, -5.0, -11.0]
    assert [leaf.drift.length for leaf in leaves] == [1.0] * 4
    assert [region.drift.length for region in branches] == [1.0, 1.0]
    for region in branches:
        control.start_drifts(region.below, [0, 0])
    assert [float(leaf.drift.correction["w"][0]) for leaf in leaves] == [1.0, -1.0, 3.0, -3.0]
    cloud_round(branches)
    assert [float(region.drift.correction["w"][0]) for region in branches] == [3.0, -3.0]


def test_a_drift_starts_anew_from_a_model_of_the_cloud_s():
    """It comes after one of two rounds of the region: only the way from there on counts, and counts once."""
    gradients = [1.0, 3.0, 5.0, 11.0]
    branches, leaves = tree_of(gradients, 3, **GROUPING)
    round_without_step(branches, leaves, gradients)
    cloud_round(branches)
    assert [(leaf.drift.length, float(leaf.drift.start["w"][0])) for leaf in leaves] == [(0.0, -2.5)] * 4
    round_without_step(branches, leaves, gradients)
    assert [region.drift.length for region in branches] == [0.5, 0.5]
    assert [(leaf.drift.length, float(leaf.drift.start["w"][0])) for leaf in leaves] == [(0.5, -2.5)] * 4


def test_a_drift_in_progress_comes_back_with_what_its_parent_has_counted():
    gradients = [1.0, 3.0, 5.0, 11.0]
    branches, leaves = tree_of(gradients, 3, **GROUPING)
    round_without_step(branches, leaves, gradients)
    _, again = tree_of(gradients, 3, **GROUPING)
    again[1].restore(leaves[1].states(), leaves[1].facts())
    drift = again[1].drift
    assert (drift.length, float(drift.start["w"][0]), drift.counted) == (0.5, 0.0, 0.5)
    assert leaves[1].facts()["drift"] == again[1].facts()["drift"]


def test_corrections_of_a_tier_move_no_mean():
    """Over siblings u and v sum to zero, so a region's and the cloud's mean move as gradients say."""
    gradients = [0.3, -1.7, 2.2, 5.1]
    branches, leaves = tree_of(gradients, levels=3)
    for _ in range(3):
        train(leaves, gradients)
        for region in branches:
            region.combine(1, same)
            assert sum(leaf.drift.correction["w"][0] for leaf in region.below) == pytest.approx(0, abs=1e-12)
        cloud_round(branches)
        assert sum(region.drift.correction["w"][0] for region in branches) == pytest.approx(0, abs=1e-12)
    assert models(leaves) == pytest.approx([-3 * LR * np.mean(gradients)] * 4)


@pytest.mark.parametrize(
    ("levels", "corrected"), [(1, [0, 0, 0]), (2, [0, 0, 1]), (3, [0, 1, 1]), (4, [1, 1, 1])]
)
def test_levels_count_from_below(levels, corrected):
    """Drifts in a tree of cloud, two tiers of regions and leaves: from the cloud down."""
    branches, leaves = tree_of([0.0] * 8, levels, "2x2x2x1")
    tiers = [branches, branches[0].below, leaves]
    assert [int(tier[0].drift is not None) for tier in tiers] == corrected


def test_a_region_hands_on_what_it_is_made_of():
    """Means over regions and over their leaves directly have the same bits, also in float32."""
    rng = np.random.default_rng(0)
    branches, leaves = tree_of([0.0] * 4, levels=1)
    for leaf in leaves:
        leaf.models.trained("leaf", {"w": rng.normal(size=1000).astype(np.float32)})
    direct = mean_of(leaf.contribution(1) for leaf in leaves)
    brought = [region.contribution(1) for region in branches if region.combine(1, same) is None]
    assert (mean_of(brought)["w"] == direct["w"]).all()
    rounded = mean_of([each.__class__(each.child, each.state, each.weight, 1) for each in brought])
    assert (rounded["w"] != direct["w"]).any()  # with means that were rounded between it is another number


def test_what_a_region_serves_all_below_serve():
    branches, leaves = tree_of([0.0] * 8, 1, "2x2x2x1")
    served, unseen = state(3.0), state(4.0)
    branches[1].models.continue_with(served)
    branches[1].models.serve_unseen(unseen, is_own=False)
    assert [leaf.models.served is served for leaf in leaves] == [False] * 4 + [True] * 4
    assert [leaf.models.unseen is unseen for leaf in leaves] == [False] * 4 + [True] * 4
    branches[0].begin(unseen)
    assert all(leaf.model is unseen for leaf in leaves[:4])


def test_unseen_clients_are_served_a_leaf_s_own_layers_with_the_region_s_model_alone():
    """A model for unseen clients alone is theirs as it is; without one they have what others have."""
    region, leaves = apart(kept=["w"])
    region.models.continue_with(state(9.0))
    seen = [region.evaluated_model(leaf, "own", region.model, unseen=True) for leaf in leaves]
    assert [model is leaf.models.served for model, leaf in zip(seen, leaves, strict=True)] == [True, True]
    region.models.serve_unseen(region.model, is_own=True)
    assert [float(leaf.models.unseen["w"][0]) for leaf in leaves] == models(leaves) == [1.0, 5.0]
    other = state(7.0)
    region.models.serve_unseen(other, is_own=False)
    assert all(leaf.models.unseen is other for leaf in leaves)
    assert all(region.evaluated_model(leaf, "own", region.model, unseen=True) is other for leaf in leaves)
    assert all(region.evaluated_model(leaf, "own", region.model) is leaf.models.served for leaf in leaves)
    region.models.serve_unseen(None, is_own=False)
    assert all(leaf.models.unseen is None for leaf in leaves)


def test_unseen_clients_are_served_a_cluster_s_model_as_it_is_although_the_region_took_it():
    region, leaves = apart(kept=["w"])
    region.models.continue_with(state(9.0))
    region.models.serve_unseen(region.model, is_own=False)
    assert all(leaf.models.unseen is region.model for leaf in leaves)
    assert models(leaves) == [1.0, 5.0]


def test_a_region_knows_who_is_below():
    branches, leaves = tree_of([0.0] * 8, 1, "2x2x2x1", samples=3)
    assert [region.path for region in all_regions(branches)] == [(0, 0), (0, 1), (1, 0), (1, 1), (0,), (1,)]
    assert leaves_below(branches[1]) == leaves[4:]
    assert (branches[1].clients, branches[1].weight) == ((4, 5, 6, 7), 12)
    assert [leaf.path for leaf in leaves[:3]] == [(0, 0, 0), (0, 0, 1), (0, 1, 0)]


def test_a_region_s_states_come_back():
    """With a correction in force, and in the middle of a drift."""
    gradients = [1.0, 3.0, 5.0, 11.0]
    branches, leaves = tree_of(gradients, levels=3)
    train(leaves, gradients)
    for region in branches:
        region.combine(1, same)
    cloud_round(branches)
    train(leaves, gradients)
    branches[0].combine(2, same)
    again, _ = tree_of(gradients, levels=3)
    region: Region = again[0]
    region.restore(branches[0].states(), branches[0].facts())
    assert region.model["w"] == branches[0].model["w"]
    assert region.drift.length == branches[0].drift.length > 0
    assert region.drift.start["w"] == branches[0].drift.start["w"] != region.model["w"]
    assert region.drift.correction["w"] == branches[0].drift.correction["w"]


def test_models_of_a_region_s_round_go_up_once_and_down_to_every_leaf():
    """Models of 8 bytes: leaves bring theirs, regions their mean; both means go down to leaves."""
    branches, leaves = tree_of([0.0] * 8, 1, "2x2x2x1")
    book = RoundBook(1)
    for region in all_regions(branches):
        region.combine(1, same)
        book.note_region(region)
    assert {path: (t.up, t.down) for path, t in book.traffic.items()} == {
        **{leaf.path: (8, 16) for leaf in leaves},
        **dict.fromkeys([(0, 0), (0, 1), (1, 0), (1, 1)], (8, 8)),
    }
    assert (book.cloud_uplink_bytes, book.cloud_downlink_bytes) == (12 * 8, 8 * 16 + 4 * 8)


def apart(kept=()):
    """A region over two leaves that stand apart, at 1 and 5, with weights 1 and 3."""
    leaves = [Leaf(j, {j: windows}, state(0.0), ["w"], None, 0) for j, windows in enumerate((1, 3))]
    for leaf in leaves:
        leaf.path = (0, leaf.index)
    region = Region((0,), leaves, False, True, kept)  # they begin with one model
    for leaf, value in zip(leaves, (1.0, 5.0), strict=True):
        leaf.models.continue_with(state(value))
    return region, leaves


def test_servers_that_stand_apart_go_on_with_their_own_and_bring_their_mean():
    """(1 + 3 · 5) / 4 = 4. Refused by the region's gate, the cloud's offer leaves all as it is."""
    region, leaves = apart()
    region.gather(1, same)
    assert float(region.contribution(1).state["w"][0]) == 4.0
    assert models(leaves) == [1.0, 5.0]
    region.models.continue_with_own()
    assert models(leaves) == [1.0, 5.0]
    seen = [float(region.evaluated_model(leaf, "own", region.model)["w"][0]) for leaf in leaves]
    assert seen == [1.0, 5.0]
    offer = state(9.0)
    assert region.evaluated_model(leaves[0], "offered", offer) is offer
    region.models.continue_with(offer)
    assert models(leaves) == [9.0, 9.0]


@pytest.mark.parametrize("way", ["offer", "tentative", "mean"])
def test_what_a_region_was_given_from_above_it_looks_at_once(way):
    """Not its own mean, nor a model that it has kept, nor that of a line beside the leaves' own."""
    region, _ = apart()
    region.gather(1, same)
    region.models.continue_with_own()
    assert region.models.take_received_model() is None
    given = state(9.0)
    if way == "offer":
        region.models.continue_with(given)
    elif way == "tentative":
        region.models.take_tentatively(given)
        for server in (region, *region.below):
            server.models.trained(OWN_LINE, state(5.0))
    else:
        region.models.trained(LEAF, given)
    assert region.models.take_received_model() is given
    assert region.models.take_received_model() is None


def test_layers_of_a_leaf_s_own_stay_through_means_and_offers():
    """Entry "h" is each leaf's own; "w" is averaged: (0 + 2) / 2 = 1, then 7 from above."""
    leaves = [Leaf(j, {j: 1}, {"w": np.zeros(1), "h": np.zeros(1)}, ["w", "h"], None, 0) for j in range(2)]
    for leaf in leaves:
        leaf.path = (0, leaf.index)
    region = Region((0,), leaves, False, False, ["h"])
    for leaf in leaves:
        leaf.models.continue_with({"w": np.array([2.0 * leaf.index]), "h": np.array([10.0 + leaf.index])})
    region.combine(1, same)
    assert [(float(leaf.model["w"][0]), float(leaf.model["h"][0])) for leaf in leaves] == [(1, 10), (1, 11)]
    offer = {"w": np.array([7.0]), "h": np.array([0.0])}
    seen = [region.evaluated_model(leaf, "offered", offer) for leaf in leaves]
    region.models.continue_with(offer)
    for leaf, model in zip(leaves, seen, strict=True):
        assert (float(leaf.model["w"][0]), float(leaf.model["h"][0])) == (7, 10 + leaf.index)
        assert all((leaf.models.served[name] == model[name]).all() for name in model)


def test_an_offer_that_a_region_takes_tentatively_is_trained_beside_its_leaves_own():
    """Own lines end at 2 and 4, offers at 6 and 8: means 3 and 7, which all leaves go on with."""
    branches, leaves = tree_of([0.0] * 2, 1, "1x2x1")
    branches[0].models.take_tentatively(state(5.0))
    assert models(leaves) == [5.0, 5.0]
    for leaf, own, offered in zip(leaves, (2.0, 4.0), (6.0, 8.0), strict=True):
        leaf.models.trained(OWN_LINE, state(own))
        leaf.models.trained(LEAF, state(offered))
    branches[0].combine(1, same)
    assert models(leaves) == [7.0, 7.0]
    assert [float(leaf.models.own_line["w"][0]) for leaf in leaves] == [3.0, 3.0]
    branches[0].models.continue_with(branches[0].models.own_line)
    assert models(leaves) == [3.0, 3.0]
    assert all(leaf.models.own_line is None for leaf in leaves)


def test_zero_controls_stand_still():
    branches, leaves = tree_of([0.0] * 4, levels=3)
    train(leaves, [0.0] * 4)
    branches[0].combine(1, same)
    assert (leaves[0].sent_control["w"] == scaffold.zero_control(state(0.0))["w"]).all()


@pytest.mark.parametrize(("rounds", "parts"), [("1", [0.0, 1.0]), ("2", [])])
def test_leaves_models_are_parts_of_the_mean_above_where_a_region_has_one_round(rounds, parts):
    """With several rounds the region's model, rounded, is its contribution."""
    config = from_run_config({"hierarchy.tree": "2x2x1", "hierarchy.region-rounds": rounds})
    leaves = [Leaf(j, {j: 1}, state(0.0), ["w"], make_strategy(config, 1), 1) for j in range(4)]
    region = servers_over(config, leaves)[0]
    for leaf in leaves:
        leaf.models.trained(LEAF, state(float(leaf.index)))
    region.combine(1, same)
    brought = region.contribution(1)
    assert [float(part.state["w"][0]) for part in brought.parts] == parts
    assert brought.state["w"] == [0.5]


def test_a_region_takes_the_model_of_rounds_that_were_carried_out_elsewhere():
    """All leaves go on from it, and none of their own models is a part of the mean above."""
    branches, leaves = tree_of([0.0] * 4, levels=1)
    branches[0].combine(1, same)
    branches[0].take_combined(state(7.0), same)
    assert models(leaves) == [7.0, 7.0, 0.0, 0.0]
    assert branches[0].model is leaves[0].model
    assert branches[0].contribution(1).parts == ()


def test_servers_of_a_tier_may_stand_over_some_leaves_alone():
    """Leaves 2 and 3 of a tree of depth 4 are below server 0.1."""
    config = from_run_config({"hierarchy.tree": "2x2x2x1", "hierarchy.region-rounds": "2,3"})
    leaves = [Leaf(j, {j: 1}, state(0.0), ["w"], make_strategy(config, 1), 1) for j in (2, 3)]
    (region,) = servers_over(config, leaves, tier=2)
    assert (region.path, region.rounds) == ((0, 1), 3)
    assert [leaf.path for leaf in leaves] == [(0, 1, 0), (0, 1, 1)]
