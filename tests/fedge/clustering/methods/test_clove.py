"""CLoVE at the leaves: random deal, clusters, matching and rounds by hand, then in whole runs."""

import json

import numpy as np
import pytest

from fedge import simulate
from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.settings import CloudSetting
from fedge.clustering.likeness.evidence import Answers
from fedge.clustering.methods import clove, ifca
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.sections.cluster import ClusterConfig
from fedge.launch.projects.project import parse_override
from fedge.leaf.strategies.aggregation import Contribution

NAN = float("nan")


def answers(losses, leaf_of=None):
    columns = {ifca.role(c): np.array(column) for c, column in enumerate(np.array(losses, float).T)}
    return Answers(columns, np.ones(len(losses)), np.arange(len(losses)) if leaf_of is None else leaf_of)


def test_first_leaves_are_dealt_at_random_and_no_model_is_left_over():
    """Over seeds every pair is together and apart; models are numbered by the first leaf that has them."""
    dealt = [clove.draw_models(5, 3, seed).tolist() for seed in range(40)]
    assert clove.draw_models(5, 3, 7).tolist() == dealt[7]
    assert all(len(set(labels)) in (2, 3) and labels[0] == 0 for labels in dealt)
    assert sum(len(set(labels)) == 3 for labels in dealt) > 35  # a leaf dealt anew may have been the only one
    pairs = {(d[i] == d[j], i, j) for d in dealt for i in range(5) for j in range(i)}
    assert len(pairs) == 20


def test_clusters_are_matched_with_models_by_the_sum_of_losses():
    """Both clusters lose less on model 1: sums (3, 2) and (7, 1). 3 + 1 = 4 is less than 2 + 7 = 9, so the
    first takes the model that suits it less, where IFCA would give model 1 to everybody."""
    vectors = np.array([[1.0, 0.5], [2.0, 1.5], [7.0, 1.0]])
    assert clove.assign_models(np.array([0, 0, 1]), vectors).tolist() == [0, 1]
    assert ifca.choose(vectors, None).tolist() == [1, 1, 1]
    assert clove.assign_models(np.array([0, 0]), vectors[:2]).tolist() == [1]


def test_a_cluster_of_many_leaves_weighs_more_in_the_match():
    """Sums (3, 4.5) and (1, 2): 3 + 2 is less than 4.5 + 1, though means would say 1 + 2 against 1.5 + 1."""
    vectors = np.array([[1.0, 1.5]] * 3 + [[1.0, 2.0]])
    assert clove.assign_models(np.array([0, 0, 0, 1]), vectors).tolist() == [0, 1]


def test_the_number_of_clusters_by_the_silhouette():
    """Three bundles of vectors far apart. Bundles of two points at distance 0.1, 10 from each other, have
    silhouettes of about 1 − 0.1 / 10 = .99 with three clusters; with two, one cluster has two bundles, whose
    points are as far from each other as from the rest. Four would part a bundle."""
    bundles = np.repeat([[0.0, 0], [10, 0], [5, 8.66]], 2, axis=0)
    bundles[1::2] += 0.1
    assert clove.best_count(bundles, 5) == 3
    assert clove.best_count(bundles, 2) == 2
    assert clove.best_count(bundles, 6) == 3  # as many as there are vectors: each counts five times
    assert clove.best_count(bundles, 99) == 3


def test_a_larger_number_must_be_clearly_better():
    """Two bundles of two points each, of which one is a little apart: three clusters have a silhouette that
    is better by less than a tenth.

    With points 0, 0.1 | 10, 11: for two clusters s = mean of 1 − 0.1/10.5, 1 − 0.1/10.4, 1 − 1/9.95,
    1 − 1/10.95 = .944; a third alone counts 0: (.99 + .99 + 0 + 0) / 4 = .495."""
    assert clove.best_count(np.array([[0.0], [0.1], [10.0], [11.0]]), 3) == 2


def aggregator(count="2", **arguments):
    config = ClusterConfig(method="clove", count=count, method_args=json.dumps(arguments))
    return CloudAggregator(config, CloudSetting(("w",), seed=3), lambda c: {"w": np.array([10.0 * c])})


def brought(models):
    return [Contribution(i, m, 1, 1) for i, m in enumerate(models)]


WISHES = np.array([0.0, 8.0, 1.0, 9.0])


def asked(questions):
    """Leaves lose |θ − wish|."""
    models = [float(model["w"][0]) for model in questions[0].values()]
    return answers(np.abs(np.subtract.outer(WISHES, models)))


def rounds(cloud, models, count):
    """Carry out rounds in which each leaf moves its model to its wish; yield labels, offers and facts."""
    for _ in range(count):
        begun = cloud.begin(models)
        trained = [{"w": np.array([wish])} for wish in WISHES]
        open_step = begun.receive(brought(trained)).open()
        step = open_step.finish(asked(open_step.questions))
        models = step.offers
        yield step.labels.tolist(), [float(model["w"][0]) for model in models], step.facts


def test_rounds_by_hand():
    """Before round 1 everybody loses |θ − wish| on 0 and 10: vectors (0, 10), (8, 2), (1, 9), (9, 1) fall
    into {0, 2} and {1, 3}. Sums (1, 19) and (17, 3): the first takes θ_0. Leaves come to their wishes, so
    θ_0 = 0.5 and θ_1 = 8.5, on which they fall into the same clusters."""
    cloud = aggregator(first="losses")
    choice = cloud.first_choice(4)
    labels, models = choice.choose(asked(choice.questions))
    assert labels.tolist() == [0, 1, 0, 1]
    assert [float(m["w"][0]) for m in models] == [0.0, 10.0, 0.0, 10.0]
    for labels, offers, facts in rounds(cloud, models, 2):
        assert (labels, offers) == ([0, 1, 0, 1], [0.5, 8.5, 0.5, 8.5])
        assert (facts["taken"], facts["clusters"]) == ([0, 1, 0, 1], 2)


def test_what_a_random_deal_mixes_comes_apart():
    cloud = aggregator()
    choice = cloud.first_choice(4)
    labels, models = choice.choose(asked(choice.questions))
    assert labels.tolist() == clove.draw_models(4, 2, 3).tolist()
    assert [labels for labels, *_ in rounds(cloud, models, 2)][-1] == [0, 1, 0, 1]


def test_with_an_unknown_number_spare_models_are_left_over():
    """Three models, two kinds of leaves."""
    cloud = aggregator("3", unknown=True, first="losses")
    choice = cloud.first_choice(4)
    _, models = choice.choose(asked(choice.questions))
    labels, offers, facts = list(rounds(cloud, models, 2))[-1]
    assert (labels, facts["clusters"]) == ([0, 1, 0, 1], 2)
    assert len(set(offers)) == 2


def test_grouping_ends_once_nobody_has_changed():
    """Nobody changes in the first and second step; from the third on not even leaves that would."""
    cloud = aggregator(first="losses", stable=2)
    choice = cloud.first_choice(4)
    _, models = choice.choose(asked(choice.questions))
    *_, (labels, _, facts) = rounds(cloud, models, 2)
    assert labels == [0, 1, 0, 1]
    assert "clusters" in facts
    cloud.memory.restore(cloud.memory.states(), json.loads(json.dumps(cloud.memory.facts())))
    open_step = cloud.begin(models).receive(brought([{"w": np.array([wish])} for wish in WISHES])).open()
    step = open_step.finish(answers([[0, 1], [0, 1], [1, 0], [1, 0]]))
    assert step.labels.tolist() == [0, 1, 0, 1]
    assert "clusters" not in step.facts


def test_leaves_without_answers_keep_their_model_and_divergence_counts_as_the_worst():
    cloud = aggregator(first="losses")
    cloud.first_choice(4).choose(answers([[0, 9], [9, 0], [0, 9], [9, 0]]))
    open_step = cloud.begin([{"w": np.zeros(1)}] * 4).receive(brought([{"w": np.zeros(1)}] * 4)).open()
    step = open_step.finish(answers([[0, NAN], [NAN, NAN], [0, 9], [9, 0]]))
    assert step.facts["taken"] == [0, 1, 0, 1]
    open_step = cloud.begin([{"w": np.zeros(1)}] * 4).receive(brought([{"w": np.zeros(1)}] * 4)).open()
    assert open_step.finish(answers([[NAN, NAN]] * 4)).facts["taken"] == [0, 1, 0, 1]


def test_equal_vectors_are_one_cluster():
    cloud = aggregator(first="losses")
    labels, _ = cloud.first_choice(3).choose(answers([[1, 2]] * 3))
    assert labels.tolist() == [0, 0, 0]


# --- in a run -----------------------------------------------------------------------------------------

TINY = {
    "report": False,
    "data.path": "synthetic",
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
    "num-server-rounds": 2,
    "seed": 5,
    "cluster.method": "clove",
    "cluster.count": "2",
    "gate.enabled": False,
    "scaffold.enabled": False,
}


@pytest.mark.parametrize("method", ["clove", "ifca"])
def test_losses_are_of_the_windows_that_are_asked_for(method, tmp_path):
    """Before round 1 clients evaluate the same models on training or on validation windows."""
    found = {}
    for split in ("train", "val"):
        run = simulate(
            {
                **TINY,
                "cluster.method": method,
                "cluster.method-args.losses-on": split,
                "runs-dir": str(tmp_path / split),
            }
        )
        lines = (run.folder / "clusters.jsonl").read_text().splitlines()
        found[split] = json.loads(lines[-1])
        assert len(found[split]["losses"]) == 3
    assert found["train"]["losses"] != found["val"]["losses"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"first": "both"}, "method-args.first must be one of random, losses, but is 'both'"),
        ({"unknown": 1}, "method-args.unknown must be true or false, but is 1"),
        ({"stable": -1}, "method-args.stable must be at least 0, but is -1"),
        ({"stabel": 3}, "did you mean stable"),
    ],
)
def test_wrong_arguments_are_refused(arguments, line):
    from fedge.run.preparation.parts import refuse_parts_that_do_not_fit

    with pytest.raises(ConfigError, match=line):
        refuse_parts_that_do_not_fit(from_run_config({**TINY, "cluster.method-args": json.dumps(arguments)}))


def test_its_configuration_asks_for_training_losses():
    assert parse_override("configs/baselines/clove.toml")["cluster.method-args.losses-on"] == "train"
