"""IFCA at the leaves: the choice and the averages by hand, then the method in whole runs."""

import json

import numpy as np
import pytest

from fedge import simulate
from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.settings import CloudSetting
from fedge.clustering.likeness.evidence import Answers
from fedge.clustering.methods import ifca
from fedge.config.flat import from_run_config
from fedge.config.sections.cluster import ClusterConfig
from fedge.leaf.strategies.aggregation import Contribution
from fedge.records.reading.reader import load_run
from fedge.seeding import Purpose, torch_stream
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import get_state

NAN = float("nan")


def answers(losses, windows, leaf_of):
    columns = {ifca.role(c): np.array(column) for c, column in enumerate(np.array(losses).T)}
    return Answers(columns, np.array(windows), np.array(leaf_of))


def test_a_leafs_loss_is_the_mean_over_its_clients_windows():
    """Leaf 0: (1·10 + 4·30) / 40 = 3.25 and (3·10 + 2·30) / 40 = 2.25; leaf 1 has one client."""
    asked = answers([[1, 3], [4, 2], [5, 6]], [10, 30, 7], [0, 0, 1])
    assert ifca.leaf_losses(asked, 2, 2).tolist() == [[3.25, 2.25], [5, 6]]


def test_clients_that_did_not_answer_and_candidates_that_have_diverged():
    """Client 1 is silent; client 2's second loss is not finite; nobody of leaf 2 answers."""
    asked = answers([[1, 3], [NAN, NAN], [5, NAN], [NAN, NAN]], [10, 30, 7, 5], [0, 0, 1, 2])
    losses = ifca.leaf_losses(asked, 2, 3)
    np.testing.assert_array_equal(losses, [[1, 3], [5, np.inf], [NAN, NAN]])
    assert ifca.choose(losses, None).tolist() == [0, 0, 0]
    assert ifca.choose(losses, np.array([1, 1, 1])).tolist() == [0, 0, 1]


def test_of_equal_losses_the_first_candidate():
    assert ifca.choose(np.array([[2.0, 1.0, 1.0]]), None).tolist() == [1]


def test_a_candidate_is_the_mean_of_those_who_took_it():
    """θ_0 from leaves 0 and 2 with 1 and 3 windows: (4 + 3 · 8) / 4 = 7; nobody took θ_1; θ_2 from leaf 1."""
    candidates = [{"w": np.array([float(c)])} for c in range(3)]
    models = [{"w": np.array([4.0])}, {"w": np.array([5.0])}, {"w": np.array([8.0])}]
    means = ifca.averaged(candidates, np.array([0, 2, 0]), models, [1, 9, 3])
    assert [float(m["w"][0]) for m in means] == [7.0, 1.0, 5.0]
    assert [float(c["w"][0]) for c in candidates] == [0.0, 1.0, 2.0]


def aggregator(**settings):
    config = ClusterConfig(method="ifca", count="2", **settings)
    return CloudAggregator(config, CloudSetting(("w",)), lambda c: {"w": np.array([10.0 * c])})


def brought(models, weights):
    """Contributions of leaves to the cloud."""
    return [Contribution(i, m, w, 1) for i, (m, w) in enumerate(zip(models, weights, strict=True))]


def step_of(cloud, models, weights, heard):
    """Carry out a cloud step whose clients answer `heard`."""
    return cloud.begin(models).receive(brought(models, weights)).open().finish(heard)


def test_two_rounds_by_hand():
    """Leaves want 0, 8, 9 and lose |θ − wish|; each moves its model half of the way.

    Before round 1, candidates 0 and 10: leaf 0 takes 0, leaves 1 and 2 take 10. They make 0, 9 and 9.5 of it,
    so θ = (0, 9.25). Leaf 0 keeps θ_0, the others θ_1. They make 0, 8.625 and 9.125: θ = (0, 8.875).
    """
    wishes = np.array([0.0, 8.0, 9.0])
    cloud = aggregator()

    def asked(questions):
        models = [float(model["w"][0]) for model in questions[0].values()]
        return answers(np.abs(np.subtract.outer(wishes, models)), [1, 1, 1], [0, 1, 2])

    choice = cloud.first_choice(3)
    labels, models = choice.choose(asked(choice.questions))
    assert labels.tolist() == [0, 1, 1]
    for expected in ([0, 9.25, 9.25], [0, 8.875, 8.875]):
        begun = cloud.begin(models)
        trained = [{"w": (m["w"] + wish) / 2} for m, wish in zip(models, wishes, strict=True)]
        open_step = begun.receive(brought(trained, [1, 1, 1])).open()
        step = open_step.finish(asked(open_step.questions))
        assert [float(offer["w"][0]) for offer in step.offers] == expected
        assert (step.labels.tolist(), step.facts["taken"]) == ([0, 1, 1], [0, 1, 1])
        models = step.offers


def test_leaves_choose_in_every_step_however_rarely_groups_are_compared():
    cloud = aggregator(regroup_every=100)
    both = answers(np.array([[0.0, 1.0], [1.0, 0.0]]), [1, 1], [0, 1])
    _, models = cloud.first_choice(2).choose(both)
    for _ in range(8):
        open_step = cloud.begin(models).receive(brought(models, [1, 1])).open()
        assert all(open_step.questions)
        assert "compared" not in open_step.finish(both).facts


def test_a_leaf_changes_its_mind():
    """Leaf 1 took candidate 1, into whose mean its model goes; then candidate 0 suits it better."""
    cloud = aggregator()
    cloud.first_choice(2).choose(answers([[0, 1], [1, 0]], [1, 1], [0, 1]))
    models = [{"w": np.array([2.0])}, {"w": np.array([6.0])}]
    step = step_of(cloud, models, [1, 1], answers([[0, 1], [0, 1]], [1, 1], [0, 1]))
    assert [float(offer["w"][0]) for offer in step.offers] == [2.0, 2.0]
    assert step.labels.tolist() == [0, 0]
    step = step_of(cloud, models, [1, 3], answers([[1, 0], [0, 1]], [1, 1], [0, 1]))
    assert [float(offer["w"][0]) for offer in step.offers] == [6.0, 5.0]  # θ_1 waited; (2 + 3 · 6) / 4 = 5


def test_what_the_cloud_keeps_goes_on():
    cloud, other = aggregator(), aggregator()
    cloud.first_choice(2).choose(answers([[0, 1], [1, 0]], [1, 1], [0, 1]))
    models = [{"w": np.array([2.0])}, {"w": np.array([6.0])}]
    step_of(cloud, models, [1, 1], answers([[0, 1], [NAN, NAN]], [1, 1], [0, 1]))
    other.memory.restore(cloud.memory.states(), json.loads(json.dumps(cloud.memory.facts())))
    silent = answers([[NAN, NAN]] * 2, [1, 1], [0, 1])
    for one in (cloud, other):
        assert step_of(one, models, [1, 1], silent).facts["taken"] == [0, 1]


def test_the_candidates_of_a_run_differ_by_seed_and_the_first_is_everybodys():
    """Candidate 0 is the model that all leaves begin with under any other method."""
    streams = [torch_stream(3, Purpose.MODEL), torch_stream(3, Purpose.MODEL, 1)]
    first, second = (get_state(build_model("linear", (2, 8), 3, stream)) for stream in streams)
    assert any((first[name] != second[name]).any() for name in first)


# --- in a run -----------------------------------------------------------------------------------------

TINY = {
    "report": False,
    "data.path": "synthetic",
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
    "scaffold.enabled": False,
    "gate.enabled": False,
    "cluster.method": "ifca",
    "cluster.count": "2",
    "num-server-rounds": 3,
    "seed": 5,
}


def carry_out(tmp_path, **changes):
    with (tmp_path / "terminal.txt").open("a") as terminal:
        return simulate({**TINY, "runs-dir": str(tmp_path / "runs"), **changes}, terminal=terminal)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return carry_out(tmp_path_factory.mktemp("three"), **{"run-name": "three"}).folder


@pytest.mark.slow
def test_leaves_take_what_their_clients_lose_least_with(three):
    steps = [json.loads(line) for line in (three / "clusters.jsonl").read_text().splitlines()]
    assert [step["method"] for step in steps] == ["ifca"] * 3
    for step in steps:
        assert step["taken"] == np.argmin(step["losses"], axis=1).tolist()
    served = load_run(three).models()
    labels = steps[-1]["labels"]
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        same = all(np.array_equal(served[i][name], served[j][name]) for name in served[0])
        assert same == (labels[i] == labels[j])


@pytest.mark.slow
def test_one_candidate_is_hierarchical_averaging(tmp_path):
    """k = 1: everybody takes the only one, so models are those of one cluster."""
    one = carry_out(tmp_path, **{"cluster.count": "1", "run-name": "one"})
    all_ = carry_out(tmp_path, **{"cluster.enabled": False, "run-name": "all"})
    files = [run.folder / "checkpoints" / "final.safetensors" for run in (one, all_)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_run_in_two_parts(tmp_path, three):
    """Stopped after round 1; candidates that nobody holds at the moment go on, too."""
    carry_out(tmp_path, **{"num-server-rounds": 1})
    again = carry_out(tmp_path, resume="latest")
    for name in ("clusters.jsonl", "checkpoints/final.safetensors"):
        assert (again.folder / name).read_bytes() == (three / name).read_bytes()


def test_bytes_count_the_choice(three):
    """Per round every client gets its leaf's model and two candidates, then own and offered model; before the
    first round two candidates more. Every answer but the trained model is numbers."""
    rounds = load_run(three).rounds
    state = get_state(build_model("mlp-tiny", (6, 128), 6, torch_stream(5, Purpose.MODEL)))
    model = sum(array.nbytes for array in state.values())
    assert rounds["downlink_bytes"].to_list() == [9 * 7 * model, 9 * 5 * model, 9 * 5 * model]
    assert rounds["uplink_bytes"].to_list() == [9 * model] * 3
    # between cloud and leaves: two candidates down, of which one is the offer, and a trained model up
    assert rounds["cloud_downlink_bytes"].to_list() == [3 * 4 * model, 3 * 2 * model, 3 * 2 * model]
    assert rounds["cloud_uplink_bytes"].to_list() == [3 * model] * 3
    assert from_run_config(TINY).cluster.fixed_count == 2
