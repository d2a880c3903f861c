"""SCAFFOLD on two levels, with the real leaves: quadratics whose optimum is known, and who may correct whom.

Clients are replaced by their closed form (an exact gradient), the messages by the function calls behind them.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge import simulate
from fedge.cloud import control as cloud_control
from fedge.cloud.offers import make_offers
from fedge.config.flat import from_run_config
from fedge.exchange.evaluate import OFFERED
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TrainReply
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.aggregation import Contribution, group_means
from fedge.leaf.strategies.rules import make_strategy
from fedge.states.averaging import State, weighted_mean
from fedge.training import scaffold
from fedge.training.settings import LocalTraining

LEAVES, PER_LEAF, SIZE = 3, 3, 4
LR, STEPS, LEAF_ROUNDS = 0.05, 5, 4


class Hierarchy:
    """3 × 3 clients; client i minimises ½ (x − a_i)ᵀ diag(h_i) (x − a_i). Leaves differ more than clients.

    The clients' weights are `weights`; the optimum is that of Σ w_i f_i. A BatchNorm buffer travels along.
    """

    def __init__(
        self,
        levels: int,
        weights: Sequence[int] = (1,) * 9,
        lr: float = LR,
        steps: Sequence[int] = (STEPS,) * 9,
        momentum: float = 0.0,
    ) -> None:
        rng = np.random.default_rng(0)
        centre_of_leaf = np.repeat(3 * rng.normal(size=(LEAVES, SIZE)), PER_LEAF, axis=0)
        self.centre = centre_of_leaf + rng.normal(size=(LEAVES * PER_LEAF, SIZE))
        self.curvature = rng.uniform(0.5, 2.0, (LEAVES * PER_LEAF, SIZE))
        self.steps, self.momentum, self.lr = steps, momentum, lr
        self.settings = LocalTraining(lr=lr, momentum=momentum)
        strategy = make_strategy(from_run_config({}), PER_LEAF)
        start = {"w": np.zeros(SIZE), "running_mean": np.zeros(1)}
        self.leaves = [
            Leaf(j, {i: weights[i] for i in range(3 * j, 3 * j + 3)}, start, ["w"], strategy, levels)
            for j in range(LEAVES)
        ]
        self.own = {i: scaffold.zero_control({"w": np.zeros(SIZE)}) for i in range(LEAVES * PER_LEAF)}
        self.leaf_round = 0
        w = np.array(weights)[:, None]
        self.optimum = (w * self.curvature * self.centre).sum(0) / (w * self.curvature).sum(0)

    def train(self, leaf: Leaf) -> None:
        """One leaf round, as clients and leaf carry it out."""
        replies = {}
        told = leaf.sent_control
        assert told is not None
        for i in leaf.clients:
            correction = scaffold.correction(told, self.own[i])["w"]
            x, velocity = leaf.model["w"].copy(), np.zeros(SIZE)
            for _ in range(self.steps[i]):
                velocity = self.momentum * velocity + self.curvature[i] * (x - self.centre[i]) + correction
                x -= self.lr * velocity
            end = {"w": x, "running_mean": leaf.model["running_mean"] + 1}
            delta = scaffold.control_delta(told, leaf.model, end, self.steps[i], self.lr, self.momentum)
            self.own[i] = scaffold.updated_client_control(self.own[i], delta)
            replies[i] = TrainReply(end, leaf.train_samples[i], self.steps[i], 0.0, 0.0, 0)
        samples = [reply.samples for reply in replies.values()]
        mean = weighted_mean([reply.state for reply in replies.values()], samples)
        round_context = RoundContext(0, 1, self.leaf_round, "", "", 0, 1.0)
        leaf.aggregate_train(round_context, replies, mean, self.settings)
        leaf.keep_states(lambda state: state)

    def train_all(self, leaf_rounds: int = LEAF_ROUNDS) -> None:
        for _ in range(leaf_rounds):
            self.leaf_round += 1
            for leaf in self.leaves:
                self.train(leaf)

    def meet(
        self,
        labels: Sequence[int] = (0, 0, 0),
        refuses: Sequence[int] = (),
        blend: float = 1.0,
        kept: Sequence[str] = (),
    ) -> None:
        """The cloud averages clusters and makes its offers; leaves in `refuses` keep their own models."""
        cloud_control.record_drift_ends(self.leaves)
        models, weights = [leaf.model for leaf in self.leaves], [leaf.weight for leaf in self.leaves]
        brought = [Contribution(leaf.index, leaf.model, leaf.weight, 1) for leaf in self.leaves]
        offers = make_offers(
            models, group_means(np.array(labels), brought, [True] * len(brought)), weights, [blend], kept
        )
        groups = []
        for leaf, mine in zip(self.leaves, offers, strict=True):
            if mine and leaf.index not in refuses:
                leaf.models.continue_with(mine[OFFERED].model)
            groups.append(cloud_control.group_of(labels[leaf.index], leaf.model, mine))
        if self.leaves[0].drift is not None:
            cloud_control.start_drifts(self.leaves, groups, kept)
        for leaf in self.leaves:
            leaf.keep_states(lambda state: state)

    def error(self) -> float:
        return float(np.abs(self.leaves[0].model["w"] - self.optimum).max())

    def corrections(self) -> list[np.ndarray]:
        """u_j of every leaf; zeros where there is none."""
        drifts = [leaf.drift for leaf in self.leaves]
        return [np.zeros(SIZE) if d is None or d.correction is None else d.correction["w"] for d in drifts]


def after(hierarchy: Hierarchy, global_rounds: int) -> float:
    for _ in range(global_rounds):
        hierarchy.train_all()
        hierarchy.meet()
    return hierarchy.error()


def test_two_levels_reach_the_optimum_where_leaf_only_scaffold_stalls() -> None:
    """Four leaf rounds per global round: SCAFFOLD at the leaves cures its clients' drift, not the leaves'."""
    stalled = Hierarchy(levels=1)
    errors = [after(stalled, 20), after(stalled, 20)]
    assert errors[1] > 0.1
    assert errors[1] == pytest.approx(errors[0], rel=1e-3)
    assert after(Hierarchy(levels=2), 40) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem",
    [
        {"weights": [1, 5, 2, 8, 1, 3, 1, 1, 4]},
        {"steps": [3, 5, 7, 5, 5, 5, 4, 9, 2]},
        {"momentum": 0.9, "lr": LR / 10},
    ],
    ids=["weights", "steps", "momentum"],
)
def test_two_levels_reach_the_optimum(problem: dict) -> None:
    rounds = 120 if "momentum" in problem else 40
    assert after(Hierarchy(levels=1, **problem), rounds) > 1e-2
    assert after(Hierarchy(levels=2, **problem), rounds) < 1e-10


def test_without_the_other_level_the_corrections_are_mtgc_s() -> None:
    """y_j⁺ = y_j + (x̄_j − x̄) / (H E γ), Fang et al. 2024, in every one of five global rounds."""
    hierarchy = Hierarchy(levels=2)
    y = [np.zeros(SIZE)] * LEAVES
    for _ in range(5):
        hierarchy.train_all()
        ends = [leaf.model["w"] for leaf in hierarchy.leaves]
        hierarchy.meet()
        x = np.mean(ends, axis=0)
        y = [before + (end - x) / (STEPS * LEAF_ROUNDS * LR) for before, end in zip(y, ends, strict=True)]
        for expected, correction in zip(y, hierarchy.corrections(), strict=True):
            np.testing.assert_allclose(correction, expected, rtol=0, atol=1e-12)


def test_one_global_round_by_hand() -> None:
    """Two leaves, weights 1 and 3, Γ = 2 and 4, both from 10 to 4 and 2, u = 0 and 1.

    d_0 = (10 − 4) / 2 − 0 = 3; d_1 = (10 − 2) / 4 − 1 = 1; d = (3 + 3 · 1) / 4 = 1.5; u_0 = −1.5, u_1 = 0.5.
    Γ of a leaf round: clients of weight 1 and 3 with 2 and 6 steps at η = 0.5, m = 0.5: 5 · 0.5 / 0.5 = 5.
    """
    start = {"w": np.array([10.0], np.float32), "buffer": np.array([1.0])}
    first = scaffold.leaf_control(start, {"w": np.array([4.0]), "buffer": np.zeros(1)}, 2.0, None, ["w"])
    second = scaffold.leaf_control(start, {"w": np.array([2.0])}, 4.0, {"w": np.array([1.0])}, ["w"])
    assert first == {"w": np.array([3.0])}  # and no entry for the buffer
    assert second == {"w": np.array([1.0])}
    assert scaffold.leaf_corrections([first, second], [1, 3]) == [{"w": [-1.5]}, {"w": [0.5]}]
    assert scaffold.drift_length([2, 6], [1, 3], lr=0.5, momentum=0.5) == 5.0


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda w: scaffold.leaf_control(w, w, 0.0, None, ["w"]), "length"),
        (lambda w: scaffold.leaf_control(w, {}, 1.0, None, ["w"]), "end has no entry 'w'"),
        (lambda w: scaffold.leaf_control(w, w, 1.0, {"v": np.ones(2)}, ["w"]), "differ in entry"),
        (lambda w: scaffold.leaf_corrections([], []), "weights"),
        (lambda w: scaffold.leaf_corrections([w], [0.0]), "weights"),
        (lambda w: scaffold.leaf_corrections([w, {"w": np.ones(3)}], [1, 1]), "shape"),
        (lambda w: scaffold.drift_length([1], [], 0.1), "weights"),
    ],
)
def test_the_second_level_refuses(call: Callable[[State], object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        call({"w": np.ones(2)})


def test_a_change_that_is_not_finite_is_named() -> None:
    with pytest.raises(FloatingPointError, match="'w'"):
        scaffold.leaf_control({"w": np.ones(1)}, {"w": np.array([np.nan])}, 1.0, None, ["w"])


# --- membership ---------------------------------------------------------------------------------------


def weighted_sum(hierarchy: Hierarchy, members: Sequence[int]) -> np.ndarray:
    corrections = hierarchy.corrections()
    return np.sum([hierarchy.leaves[m].weight * corrections[m] for m in members], axis=0)


def is_zero(array: np.ndarray) -> bool:
    return bool(np.abs(array).max() == 0)


@pytest.fixture
def hierarchy() -> Hierarchy:
    """Unequal weights, after one global round in one cluster."""
    made = Hierarchy(levels=2, weights=[1, 5, 2, 8, 1, 3, 1, 1, 4])
    made.train_all()
    made.meet()
    return made


def test_corrections_sum_to_zero_over_a_cluster(hierarchy: Hierarchy) -> None:
    np.testing.assert_allclose(weighted_sum(hierarchy, range(LEAVES)), 0, atol=1e-12)
    assert not any(is_zero(u) for u in hierarchy.corrections())


def test_a_leaf_that_leaves_its_cluster_starts_from_zero(hierarchy: Hierarchy) -> None:
    """Leaf 2 goes alone; 0 and 1 go on with each other, without its d_j."""
    hierarchy.train_all()
    hierarchy.meet([0, 0, 1])
    first, second, third = hierarchy.corrections()
    assert is_zero(third)
    assert not is_zero(first)
    assert not is_zero(second)
    np.testing.assert_allclose(weighted_sum(hierarchy, [0, 1]), 0, atol=1e-12)


def test_a_leaf_that_comes_into_a_cluster_starts_from_zero_for_one_round(hierarchy: Hierarchy) -> None:
    """Leaf 2 was alone: its drift began elsewhere, so it is not in the mean; from the next round on it is."""
    hierarchy.train_all()
    hierarchy.meet([0, 0, 1])
    hierarchy.train_all()
    hierarchy.meet([0, 0, 0])
    assert [is_zero(u) for u in hierarchy.corrections()] == [False, False, True]
    np.testing.assert_allclose(weighted_sum(hierarchy, [0, 1]), 0, atol=1e-12)
    hierarchy.train_all()
    hierarchy.meet([0, 0, 0])
    assert not any(is_zero(u) for u in hierarchy.corrections())
    np.testing.assert_allclose(weighted_sum(hierarchy, range(LEAVES)), 0, atol=1e-12)


def test_a_leaf_that_moves_to_another_cluster_starts_from_zero(hierarchy: Hierarchy) -> None:
    """From {0, 1} to {1, 2}: labels may be numbered alike, the starts were others."""
    hierarchy.train_all()
    hierarchy.meet([0, 0, 1])
    hierarchy.train_all()
    hierarchy.meet([0, 1, 1])
    assert all(is_zero(u) for u in hierarchy.corrections())


def test_a_leaf_whose_gate_rejects_goes_its_own_way(hierarchy: Hierarchy) -> None:
    """Nothing draws it to the cluster; it starts from zero again when it takes an offer."""
    hierarchy.train_all()
    hierarchy.meet(refuses=[1])
    assert [is_zero(u) for u in hierarchy.corrections()] == [False, True, False]
    np.testing.assert_allclose(weighted_sum(hierarchy, [0, 2]), 0, atol=1e-12)
    hierarchy.train_all()
    hierarchy.meet()
    assert [is_zero(u) for u in hierarchy.corrections()] == [False, True, False]


def test_with_lambda_zero_clusters_make_no_difference(hierarchy: Hierarchy) -> None:
    """λ = 0: all go on with the mean of all leaves, so all stand together."""
    hierarchy.train_all()
    hierarchy.meet([0, 0, 1], blend=0.0)
    assert not any(is_zero(u) for u in hierarchy.corrections())
    np.testing.assert_allclose(weighted_sum(hierarchy, range(LEAVES)), 0, atol=1e-12)


def test_with_a_blend_a_cluster_stands_together(hierarchy: Hierarchy) -> None:
    """0 < λ < 1: what all leaves share comes with the model; the corrections are within the cluster."""
    hierarchy.train_all()
    hierarchy.meet([0, 0, 1], blend=0.5)
    assert [is_zero(u) for u in hierarchy.corrections()] == [False, False, True]
    np.testing.assert_allclose(weighted_sum(hierarchy, [0, 1]), 0, atol=1e-12)


def test_what_leaves_keep_as_their_own_is_not_corrected(hierarchy: Hierarchy) -> None:
    hierarchy.train_all()
    hierarchy.meet(kept=["w"])
    assert all(is_zero(u) for u in hierarchy.corrections())
    assert all(leaf.drift is not None and leaf.drift.group >= 0 for leaf in hierarchy.leaves)


def test_a_fork_goes_its_own_way(hierarchy: Hierarchy) -> None:
    """A fork is told c_j + u_j, as the leaf is, and its drift is not the leaf's."""
    leaf = hierarchy.leaves[0]
    assert leaf.drift is not None
    length, fork = leaf.drift.length, leaf.fork(leaf.model, scaffold=True)
    hierarchy.train(fork)
    assert fork.sent_control is leaf.sent_control
    assert leaf.sent_control is not leaf.control
    assert leaf.drift.length == length


def test_a_leaf_that_did_not_train_has_no_part(hierarchy: Hierarchy) -> None:
    """Too few replies in every leaf round: its drift has no length, so nothing is known of its gradient."""
    for _ in range(LEAF_ROUNDS):
        for leaf in hierarchy.leaves[:2]:
            hierarchy.train(leaf)
    hierarchy.meet()
    assert [is_zero(u) for u in hierarchy.corrections()] == [False, False, True]


def test_the_drift_goes_on_between_cloud_steps(hierarchy: Hierarchy) -> None:
    """A cloud step every second global round is one after twice as many leaf rounds."""
    other = Hierarchy(levels=2, weights=[1, 5, 2, 8, 1, 3, 1, 1, 4])
    other.train_all()
    other.meet()
    hierarchy.train_all(LEAF_ROUNDS)
    hierarchy.train_all(LEAF_ROUNDS)
    other.train_all(2 * LEAF_ROUNDS)
    for one in (hierarchy, other):
        assert one.leaves[0].drift is not None
        np.testing.assert_allclose(one.leaves[0].drift.length, 2 * LEAF_ROUNDS * STEPS * LR)
        one.meet()
    for u, v in zip(hierarchy.corrections(), other.corrections(), strict=True):
        np.testing.assert_array_equal(u, v)


def test_client_controls_keep_their_invariant(hierarchy: Hierarchy) -> None:
    """c_j == Σ w_i c_i / Σ w_i at every leaf, whatever u_j is: contract C6."""
    hierarchy.train_all()
    for leaf in hierarchy.leaves:
        weights = list(leaf.train_samples.values())
        mean = np.average([hierarchy.own[i]["w"] for i in leaf.clients], axis=0, weights=weights)
        assert leaf.control is not None
        np.testing.assert_allclose(leaf.control["w"], mean, rtol=0, atol=1e-12)


# --- state that survives ------------------------------------------------------------------------------------


def put_back(states: Mapping[str, State], facts: Mapping, leaf: Leaf) -> Leaf:
    strategy = make_strategy(from_run_config({}), PER_LEAF)
    begun = {name: np.zeros_like(array) for name, array in leaf.model.items()}
    other = Leaf(leaf.index, leaf.train_samples, begun, ["w"], strategy, 2)
    other.restore(states, facts)
    other.keep_states(lambda state: state)
    return other


@pytest.mark.parametrize("leaf_rounds", [0, 2], ids=["after a cloud step", "between two"])
def test_a_leaf_goes_on_from_its_states(hierarchy: Hierarchy, leaf_rounds: int) -> None:
    hierarchy.train_all(leaf_rounds)
    for index, leaf in enumerate(hierarchy.leaves):
        states = {name: dict(state) for name, state in leaf.states().items()}
        assert ("start" in states) == (leaf_rounds > 0)
        hierarchy.leaves[index] = put_back(states, leaf.facts(), leaf)
    again = hierarchy
    whole = Hierarchy(levels=2, weights=[1, 5, 2, 8, 1, 3, 1, 1, 4])
    whole.train_all()
    whole.meet()
    whole.train_all(leaf_rounds)
    for one in (again, whole):
        one.train_all(2)
        one.meet()
    for u, v in zip(again.corrections(), whole.corrections(), strict=True):
        assert u.tobytes() == v.tobytes()


def test_one_level_has_no_drift() -> None:
    hierarchy = Hierarchy(levels=1)
    hierarchy.train_all()
    hierarchy.meet()
    leaf = hierarchy.leaves[0]
    assert leaf.drift is None
    assert leaf.sent_control is leaf.control
    assert not {"correction", "start"} & set(leaf.states())
    assert "drift" not in leaf.facts()


@given(st.integers(1, 6), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_corrections_sum_to_zero_under_any_weights_and_scale_with_the_controls(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    controls = [{"w": rng.normal(size=3)} for _ in range(count)]
    weights = list(rng.uniform(0.1, 9, count))
    made = scaffold.leaf_corrections(controls, weights)
    np.testing.assert_allclose(sum(w * u["w"] for w, u in zip(weights, made, strict=True)), 0, atol=1e-12)
    larger = scaffold.leaf_corrections([{"w": 2 * d["w"] + 5} for d in controls], weights)
    for u, v in zip(made, larger, strict=True):  # what all have in common is no reason to correct
        np.testing.assert_allclose(v["w"], 2 * u["w"], atol=1e-12)


# --- in a run -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("apart", [{"gate.min-gain": 1.0}, {"cluster.tau": 1.01}], ids=["gate", "alone"])
def test_leaves_that_go_their_own_ways_train_as_on_one_level(apart: dict, tmp_path: Path) -> None:
    """All offers are rejected, or there are none: no correction ever, so the same bits as with one level."""
    models = []
    for levels in (1, 2):
        config = {
            "report": False, "data.path": "synthetic", "train.model": "mlp-tiny", "train.local-epochs": 1,
            "num-server-rounds": 3, "scaffold.levels": levels, "runs-dir": str(tmp_path), **apart,
        }  # fmt: skip
        with (tmp_path / "terminal.txt").open("a") as terminal:
            outcome = simulate(config, terminal=terminal)
        models.append((outcome.folder / "checkpoints" / "final.safetensors").read_bytes())
    assert models[0] == models[1]
