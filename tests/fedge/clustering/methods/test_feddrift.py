"""FedDrift at the leaves: accuracies, drifts, isolation and merging by hand, then a run with a drift."""

import json

import numpy as np
import pytest

from fedge import simulate
from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.settings import CloudSetting
from fedge.clustering.likeness.evidence import Answers
from fedge.clustering.methods import feddrift, ifca
from fedge.config.sections.cluster import ClusterConfig
from fedge.leaf.strategies.aggregation import Contribution
from fedge.records.reading.reader import load_run

NAN = float("nan")


def answers(accuracies, windows=None, leaf_of=None):
    """Answers of clients whose rows are the accuracies of the cloud's models."""
    rows = np.array(accuracies, dtype=float)
    columns = {ifca.role(c): column for c, column in enumerate(rows.T)}
    ones, numbered = np.ones(len(rows)), np.arange(len(rows))
    losses = {name: 1 - column for name, column in columns.items()}
    windows, leaf_of = ones if windows is None else windows, numbered if leaf_of is None else leaf_of
    return Answers(losses, np.array(windows), np.array(leaf_of), accuracies=columns)


def test_a_leafs_accuracy_is_that_of_its_clients_windows():
    """(1 · 10 + 0.5 · 30) / 40 = 0.625; client 2 is silent, so nothing is known of leaf 1."""
    heard = answers([[1.0, 0.2], [0.5, 0.6], [NAN, NAN]], [10, 30, 5], [0, 0, 1])
    np.testing.assert_allclose(feddrift.leaf_accuracies(heard, 2, 2), [[0.625, 0.5], [NAN, NAN]])


class Cloud:
    """A cloud of leaves that make of a model what they are told, models being one number."""

    def __init__(self, leaves, **arguments):
        config = ClusterConfig(method="feddrift", count="3", method_args=json.dumps(arguments))
        self.cloud = CloudAggregator(
            config, CloudSetting(("w",), seed=1), lambda c: {"w": np.array([float(c)])}
        )
        choice = self.cloud.first_choice(leaves)
        labels, self.models = choice.choose(answers([[0.1] * 3] * leaves))
        assert labels.tolist() == [0] * leaves

    def step(self, accuracies, made=None):
        """Let a round pass; return what leaves have, and what was told."""
        made = self.models if made is None else [{"w": np.array([float(value)])} for value in made]
        brought = [Contribution(i, model, 1, 1) for i, model in enumerate(made)]
        step = self.cloud.begin(self.models).receive(brought).open().finish(answers(accuracies))
        self.models = step.offers
        memory = self.cloud.memory
        memory.restore(memory.states(), json.loads(json.dumps(memory.facts())))
        return step.facts["taken"], step.facts

    @property
    def numbers(self):
        return [float(model["w"][0]) for model in self.models]


def same(*rows):
    """Accuracies of model 0 at each leaf; the others' do not count as long as nobody has them."""
    return [[row, 1.0, 1.0] for row in rows]


def test_drift_isolation_and_coming_back_by_hand():
    """Three leaves at 0.8. Leaf 2 falls to 0.6, by more than 0.1: it gets model 1, a copy of θ_0 = 5. It
    trains it to 9, whatever the others do, in isolation for a time step; then it takes what suits it."""
    cloud = Cloud(3)
    assert cloud.step(same(0.8, 0.8, 0.8), made=[4, 5, 6])[0] == [0, 0, 0]
    taken, facts = cloud.step(same(0.8, 0.75, 0.6))
    assert (taken, facts["drifted"], facts["merged"]) == ([0, 0, 1], [2], [])
    assert cloud.numbers == [5.0, 5.0, 5.0]
    taken, facts = cloud.step([[0.8, 0.4, 1], [0.8, 0.4, 1], [0.3, 0.9, 1]], made=[5, 5, 9])
    assert (taken, facts["merged"]) == ([0, 0, 1], [])
    assert cloud.numbers == [5.0, 5.0, 9.0]


def test_a_small_fall_is_no_drift_and_small_falls_add_up_to_none():
    """Each is measured against the step before."""
    cloud = Cloud(2)
    for accuracy in (0.8, 0.71, 0.62, 0.53):
        assert cloud.step(same(accuracy, 0.8))[0] == [0, 0]
    assert cloud.step(same(0.4, 0.8))[0] == [1, 0]


def test_models_that_do_as_well_merge_weighted_by_use():
    """Model 0 was had by leaves 0 and 1 and, at the start and in the first step, by 2: 2 · 4 + 2 = 10 times
    until the fourth step, model 1 by leaf 2 in the second, third and … step. Both do as well everywhere."""
    cloud = Cloud(3)
    cloud.step(same(0.8, 0.8, 0.8))
    cloud.step(same(0.8, 0.8, 0.6))
    taken, facts = cloud.step([[0.8, 0.75, 1], [0.8, 0.75, 1], [0.75, 0.8, 1]], made=[0, 0, 5])
    assert (taken, facts["merged"]) == ([0, 0, 0], [[0, 1]])
    uses = np.array([3 + 3 + 2 + 2, 1 + 1])  # before round 1 and in three steps
    np.testing.assert_allclose(cloud.numbers, [5 * uses[1] / uses.sum()] * 3)
    assert cloud.step(same(0.8, 0.8, 0.6))[0] == [0, 0, 1]  # the model that is free is given again


@pytest.mark.parametrize(("delta", "taken"), [(0.15, [0, 1]), (0.25, [0, 0])])
def test_a_fall_of_delta_is_a_drift(delta, taken):
    """From 0.8 to 0.6."""
    cloud = Cloud(2, delta=delta)
    cloud.step(same(0.8, 0.8))
    assert cloud.step(same(0.8, 0.6))[0] == taken


@pytest.mark.parametrize(("merge", "merged"), [(0.06, [[0, 1]]), (0.04, []), (0.0, [[0, 1]])])
def test_models_merge_up_to_a_loss(merge, merged):
    """Each loses 0.05 where the other is at home; 0 stands for delta, 0.1."""
    cloud = Cloud(3, merge=merge)
    cloud.step(same(0.8, 0.8, 0.8))
    cloud.step(same(0.8, 0.8, 0.6))
    assert cloud.step([[0.8, 0.75, 1], [0.8, 0.75, 1], [0.75, 0.8, 1]])[1]["merged"] == merged


def test_no_more_models_than_there_are():
    """Of three models two are given; the fourth leaf finds all of them in use and stays."""
    cloud = Cloud(4, isolation=9)
    cloud.step(same(0.8, 0.8, 0.8, 0.8))
    taken, facts = cloud.step(same(0.8, 0.5, 0.5, 0.5))
    assert (taken, facts["drifted"]) == ([0, 1, 2, 0], [1, 2])


def test_without_isolation_a_drifted_leaf_chooses_again_in_the_next_time_step():
    """At W = 0. Model 1 is no better for it than model 0, which it takes again."""
    cloud = Cloud(3, isolation=0, merge=0.001)
    cloud.step(same(0.8, 0.8, 0.8))
    assert cloud.step(same(0.8, 0.8, 0.6))[0] == [0, 0, 1]
    assert cloud.step([[0.8, 0.4, 1], [0.8, 0.4, 1], [0.6, 0.5, 1]])[0] == [0, 0, 0]


def test_a_model_given_again_is_not_merged_by_the_accuracies_of_what_it_was():
    """Leaves 2 and 1 had models 1 and 2 for a while. Now leaf 0 falls and gets model 1, unused for longest,
    to train alone. What this model was before did as well as model 0 everywhere."""
    cloud = Cloud(3)
    cloud.step(same(0.8, 0.65, 0.65))
    assert cloud.step(same(0.8, 0.65, 0.5))[0] == [0, 0, 1]
    assert cloud.step([[0.8, 0.4, 1], [0.5, 0.4, 1], [0.6, 0.4, 1]])[0] == [0, 2, 0]
    assert cloud.step([[0.8, 0.4, 0.4], [0.6, 0.4, 0.4], [0.6, 0.4, 0.4]])[0] == [0, 0, 0]
    taken, facts = cloud.step([[0.6, 0.6, 0.4]] * 3)
    assert (taken, facts["drifted"], facts["merged"]) == ([1, 0, 0], [0], [])


def test_between_time_steps_nobody_changes():
    cloud = Cloud(2, step=2)
    assert "drifted" in cloud.step(same(0.8, 0.8))[1]
    assert "drifted" not in cloud.step(same(0.8, 0.1))[1]
    assert cloud.step(same(0.8, 0.1))[0] == [0, 1]


def test_a_leaf_without_answers_keeps_its_model():
    cloud = Cloud(2)
    cloud.step(same(0.8, 0.8))
    assert cloud.step([[0.8, 1, 1], [NAN, NAN, NAN]])[0] == [0, 0]
    assert cloud.step(same(0.8, 0.5))[0] == [0, 1]


def test_distances_are_the_larger_loss():
    """θ_0 loses .3 at the leaves of θ_1, which loses nothing at those of θ_0."""
    found = feddrift.distances_between(np.array([[0.8, 0.4], [0.9, 0.7]]))
    np.testing.assert_allclose(found, [[0, 0.4], [0.4, 0]])


@pytest.mark.slow
@pytest.mark.parametrize("engine_seed", [5])
@pytest.mark.extended
def test_in_a_run_a_drift_is_seen(engine_seed, tmp_path):
    """Labels of one leaf permuted from round 4 on. It falls, and so does another, since the mean of all has
    seen a round of the new labels; a round later the two that are alike have come together again."""
    run = simulate(
        {
            "report": False, "data.path": "synthetic", "train.model": "cnn", "train.local-epochs": 3,
            "num-server-rounds": 5, "seed": engine_seed, "cluster.method": "feddrift", "cluster.count": "3",
            "gate.enabled": False, "scaffold.enabled": False, "scenario": "label-permutation",
            "scenario-from": 4, "runs-dir": str(tmp_path),
        }
    )  # fmt: skip
    steps = [json.loads(line) for line in (run.folder / "clusters.jsonl").read_text().splitlines()]
    groups = dict(load_run(run.folder).manifest["scenario"]["later"])[4]
    changed = [leaf for leaf, group in enumerate(groups) if group]
    assert [step["taken"] for step in steps[:3]] == [[0, 0, 0]] * 3
    assert set(changed) <= set(steps[3]["drifted"])
    assert steps[4]["labels"] == [groups.index(group) for group in groups]
