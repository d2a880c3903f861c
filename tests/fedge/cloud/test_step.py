import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.probe import Probe
from fedge.cloud.settings import CloudSetting
from fedge.clustering.cloud_part import CloudPart, Family
from fedge.clustering.likeness.evidence import Answers, leaf_role
from fedge.clustering.likeness.similarity import weight_clustering
from fedge.config.registers.option import ConfigError
from fedge.config.sections.cluster import ClusterConfig
from fedge.leaf.strategies.aggregation import Contribution

NAMES = ("body", "head")


def state(head, body=0.0, count=0):
    """A model: two trainable entries and a BatchNorm pair."""
    return {
        "body": np.array([[body]], np.float32),
        "head": np.array([head], np.float32),
        "running_var": np.array([1.0 + count], np.float32),
        "num_batches": np.array(count),
    }


def cloud(**settings):
    return CloudAggregator(ClusterConfig(**settings), CloudSetting(NAMES))


def brought(models, weights):
    """Contributions of leaves to the cloud."""
    return [Contribution(i, m, w, 1) for i, (m, w) in enumerate(zip(models, weights, strict=True))]


def step_of(aggregator, starts, models, weights):
    return aggregator.begin(starts).receive(brought(models, weights)).open().finish()


START = state([1, 1])


def test_by_hand():
    """Leaves 0 and 2 point one way, 1 another. Weights 10, 99, 30: (10·(1, 0) + 30·(0.8, 0.6)) / 40 = (0.85,
    0.45).

    The bodies: (10·4 + 30·8) / 40 = 7. The running variances 2 and 4: (10·2 + 30·4) / 40 = 3.5. The counter
    is leaf 0's.
    """
    models = [state([1, 0], 4, 1), state([0, -1], 5, 2), state([0.8, 0.6], 8, 3)]
    step = step_of(cloud(tau=0.7), [START] * 3, models, [10, 99, 30])
    assert step.labels.tolist() == [0, 1, 0]
    assert (step.signal, step.tau, step.common_start) == ("weights", 0.7, True)
    np.testing.assert_allclose(step.similarity, [[1, 0, 0.8], [0, 1, 0.6], [0.8, 0.6, 1]], atol=1e-7)
    offer = step.offers[0]
    np.testing.assert_allclose(offer["head"], [[0.85, 0.45]], rtol=1e-6)
    assert offer["body"].tolist() == [[7.0]]
    assert offer["running_var"].tolist() == [3.5]
    assert offer["num_batches"].tolist() == 1
    assert {n: a.dtype for n, a in offer.items()} == {n: a.dtype for n, a in models[0].items()}
    assert step.offers[2] is offer
    assert step.offers[1] is None


def test_the_matrix_is_the_published_one():
    rng = np.random.default_rng(1)
    models = [state(rng.normal(size=4), i) for i in range(4)]
    step = step_of(cloud(tau=0.4), [START] * 4, models, [1] * 4)
    labels, similarity, _ = weight_clustering([{n: m[n] for n in NAMES} for m in models], tau=0.4)
    assert step.labels.tolist() == labels.tolist()
    assert step.similarity.tobytes() == similarity.tobytes()


def test_a_leaf_alone_is_offered_nothing():
    step = step_of(cloud(tau=1.5), [START] * 2, [state([1, 0]), state([1, 0])], [1, 1])
    assert step.labels.tolist() == [0, 1]
    assert step.offers == [None, None]
    assert step_of(cloud(), [START], [state([1, 0])], [1]).offers == [None]


def test_without_clustering_all_leaves_are_one_cluster():
    """(1·(1, 0) + 3·(0, 1)) / 4 = (0.25, 0.75), however unlike the leaves are."""
    step = step_of(cloud(enabled=False), [START] * 2, [state([1, 0]), state([0, 1])], [1, 3])
    assert (step.signal, step.similarity) == ("off", None)
    assert step.labels.tolist() == [0, 0]
    for offer in step.offers:
        assert offer["head"].tolist() == [[0.25, 0.75]]


def test_the_update_signal_compares_what_changed():
    """From start (1, 1): leaf 0 moved by (1, 0), leaf 1 by (−2, 0), leaf 2 by (0.8, 0.6); signed cosines −1,
    0.8, −0.8.

    BatchNorm statistics moved differently and take no part.
    """
    models = [state([2, 1], count=1), state([-1, 1], count=2), state([1.8, 1.6], count=3)]
    step = step_of(cloud(signal="update", tau=0.7), [START] * 3, models, [1, 1, 1])
    np.testing.assert_allclose(step.similarity, [[1, -1, 0.8], [-1, 1, -0.8], [0.8, -0.8, 1]], atol=1e-6)
    assert step.labels.tolist() == [0, 1, 0]
    assert (step.signal, step.common_start) == ("update", True)


def test_the_update_signal_counts_all_trainable_entries():
    """Leaf 0 moved (body 1, head 0), leaf 1 (body 1, head (1, 0)): cosine 1/√2."""
    models = [state([1, 1], 1), state([2, 1], 1)]
    step = step_of(cloud(signal="update"), [START] * 2, models, [1, 1])
    assert step.similarity[0, 1] == pytest.approx(np.sqrt(0.5))


def test_updates_from_different_starts_leave_clusters_as_they_are():
    """The first such step finds one cluster, a later one those in force; both say why."""
    starts, models = [state([1, 1], 0), state([1, 1], 5)], [state([2, 1]), state([-1, 1])]
    aggregator = cloud(signal="update", tau=0.7)
    assert step_of(aggregator, starts, models, [1, 1]).labels.tolist() == [0, 0]
    assert step_of(aggregator, [START] * 2, models, [1, 1]).labels.tolist() == [0, 1]
    step = step_of(aggregator, starts, [state([2, 1])] * 2, [1, 1])
    assert (step.labels.tolist(), step.similarity) == ([0, 1], None)
    assert "did not start from one model" in step.facts["skipped"]


def test_common_start_compares_values_not_objects():
    copies = [state([1, 1]), state([1, 1])]
    assert step_of(cloud(), copies, [state([1, 0])] * 2, [1, 1]).common_start is True
    copies[1]["num_batches"] = np.array(1)
    assert step_of(cloud(), copies, [state([1, 0])] * 2, [1, 1]).common_start is False


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=5), st.integers(0, 2**32 - 1))
def test_an_offer_lies_between_its_members(weights, seed):
    rng = np.random.default_rng(seed)
    models = [state(rng.normal(size=2)) for _ in weights]
    step = step_of(cloud(tau=0.5), [START] * len(models), models, weights)
    for leaf, offer in enumerate(step.offers):
        members = [
            m["head"] for m, label in zip(models, step.labels, strict=True) if label == step.labels[leaf]
        ]
        assert (offer is None) == (len(members) == 1)
        if offer is not None:
            assert (offer["head"] <= np.max(members, axis=0) + 1e-6).all()
            assert (offer["head"] >= np.min(members, axis=0) - 1e-6).all()


def test_models_are_left_alone():
    models = [state([1, 0]), state([1, 0.1])]
    before = [{n: a.copy() for n, a in m.items()} for m in models]
    step_of(cloud(), [START] * 2, models, [1, 2])
    for model, copy in zip(models, before, strict=True):
        assert all((model[n] == copy[n]).all() for n in model)


@pytest.mark.parametrize("signal", ["weights", "update"])
def test_a_leaf_that_is_not_finite_is_named(signal):
    with pytest.raises(ValueError, match="leaf 1 has non-finite weights"):
        step_of(cloud(signal=signal), [START] * 2, [state([1, 0]), state([np.nan, 0])], [1, 1])


# --- steps that hang together -------------------------------------------------------------------------

BY_LOSSES = {"signal": "affinity", "method": "agglomerative", "count": "2", "patience": 2}
LEAF_OF = np.repeat(np.arange(4), 4)


def answered(groups):
    """Answers of clients at which models of other groups do three times as badly."""
    groups = np.array(groups)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.1, (4, 16)))
    losses = noise * np.where(groups[:, None] == groups[LEAF_OF], 1.0, 3.0)
    said = {leaf_role(leaf): row for leaf, row in enumerate(losses)}
    return Answers(said, np.full(16, 9), LEAF_OF, downlink_bytes=1000)


def four(seed=1):
    rng = np.random.default_rng(seed)
    return [state(rng.normal(size=2), leaf) for leaf in range(4)]


def met(aggregator, start=True, weights=(1, 1, 1, 1), global_round=3):
    """The leaves' received with the cloud, after a round from one start or from different ones."""
    return aggregator.begin([START] * 4 if start else four(2)).receive(brought(four(), weights), global_round)


def next_step(aggregator, answers, start=True, probe=None):
    """Carry out a step from one start or from different ones; returns what was asked and the step."""
    open_step = met(aggregator, start).open(probe)
    return open_step.questions, open_step.finish(answers)


def test_what_is_asked():
    """Published: nothing. With cross-losses: every model of everybody."""
    assert not any(met(cloud()).open().questions)
    asked, step = next_step(cloud(**BY_LOSSES), answered([0, 0, 1, 1]))
    assert [sorted(roles) for roles in asked] == [["leaf-0", "leaf-1", "leaf-2", "leaf-3"]] * 4
    assert (step.facts["candidate"], step.facts["agreed"]) == ([0, 0, 1, 1], 1)
    assert step.trials == [None] * 4
    assert not any(met(cloud(enabled=False, **BY_LOSSES)).open().questions)


def test_groups_that_are_found_twice_are_in_force():
    aggregator = cloud(**BY_LOSSES)
    found = [[0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 1, 1]]
    labels = [next_step(aggregator, answered(groups))[1].labels.tolist() for groups in found]
    assert labels == [[0] * 4] * 3 + [[0, 0, 1, 1]]


def test_a_step_tells_what_it_rests_on():
    aggregator = cloud(**BY_LOSSES)
    next_step(aggregator, answered([0, 0, 1, 1]))
    _, step = next_step(aggregator, answered([0, 0, 1, 1]))
    assert step.facts["events"] == [{"kind": "split", "before": [[0, 1, 2, 3]], "after": [[0, 1], [2, 3]]}]
    assert step.facts["exchange_bytes"] == 1000
    assert np.array(step.facts["cross_loss"]).shape == (4, 4)
    assert step.offers[0] is step.offers[1]
    assert step.offers[2] is step.offers[3]
    json.dumps(step.facts, allow_nan=False)


def test_unknown_losses_are_null():
    silent = answered([0, 0, 1, 1])
    for row in silent.losses.values():
        row[:4] = np.nan
    _, step = next_step(cloud(**BY_LOSSES), silent)
    assert step.facts["cross_loss"][1][0] is None
    assert step.facts["skipped"] == "no client of leaf 0 has evaluated the models"


def split_cloud(**changes):
    aggregator = cloud(**{**BY_LOSSES, **changes})
    for _ in range(2):
        next_step(aggregator, answered([0, 0, 1, 1]))
    return aggregator


def test_probes_come_only_when_leaves_have_gone_apart():
    """Every third step from different starts; a step from one start needs none."""
    aggregator = split_cloud(probe_every=3)
    due = []
    for start in (True, False, False, False, False, True, False):
        received = met(aggregator, start)
        common = received.probe_start()
        due.append(common is not None)
        probe = None if common is None else Probe(common, four())
        received.open(probe).finish(answered([0, 0, 1, 1]))
    assert due == [False, False, False, True, False, False, False]
    for _ in range(2):
        met(aggregator, start=False).open().finish(answered([0, 0, 1, 1]))
    common = met(aggregator, start=False, weights=[1, 1, 1, 5]).probe_start()
    np.testing.assert_allclose(common["body"], [[(0 + 1 + 2 + 15) / 8]], rtol=1e-6)
    assert met(cloud(**BY_LOSSES)).probe_start() is None


def test_wrong_groups_are_put_right_by_probes():
    """Two probes that find other groups; steps in between change nothing.

    What is offered is a mean of the leaves' own models, whose bodies are 0 to 3, not of the probe's.
    """
    aggregator = split_cloud(probe_every=2)
    labels = []
    for _ in range(2):
        next_step(aggregator, answered([0, 0, 1, 1]), start=False)
        received = met(aggregator, start=False)
        probe = Probe(received.probe_start(), four(3))
        open_step = received.open(probe)
        assert open_step.questions[0]["leaf-1"] is probe.models[1]
        step = open_step.finish(answered([0, 1, 0, 1]))
        assert (step.common_start, step.facts["probe"]) == (True, True)
        labels.append(step.labels.tolist())
    assert labels == [[0, 0, 1, 1], [0, 1, 0, 1]]
    assert step.facts["events"][0]["kind"] == "move"
    np.testing.assert_array_equal(step.offers[0]["body"], [[1]])


def test_what_was_measured_before_a_change_is_forgotten():
    aggregator = cloud(**BY_LOSSES)
    kept = []
    for _ in range(7):
        next_step(aggregator, answered([0, 0, 1, 1]))
        kept.append(len(aggregator.memory.states()))
    assert kept == [1, 0, 1, 2, 3, 4, 4]
    assert step_of(cloud(), [START] * 2, [state([1, 0])] * 2, [1, 1])
    assert cloud().memory.states() == {}


@pytest.mark.parametrize("after", range(5))
def test_a_restored_cloud_goes_on_alike(after):
    """Facts survive JSON, states are copied, at any point of a run with a split and probes."""
    whole, parts = cloud(**BY_LOSSES, probe_every=2), cloud(**BY_LOSSES, probe_every=2)
    for at in range(5):
        if at == after:
            facts = json.loads(json.dumps(parts.memory.facts()))
            states = {name: {k: a.copy() for k, a in s.items()} for name, s in parts.memory.states().items()}
            parts = cloud(**BY_LOSSES, probe_every=2)
            parts.memory.restore(states, facts)
        steps = []
        for aggregator in (whole, parts):
            received = met(aggregator, start=at < 2, global_round=at)
            start = received.probe_start()
            probe = None if start is None else Probe(start, four(4))
            steps.append(received.open(probe).finish(answered([0, 0, 1, 1])))
        assert steps[0].facts == steps[1].facts
        assert steps[0].labels.tolist() == steps[1].labels.tolist()
        assert steps[0].similarity.tobytes() == steps[1].similarity.tobytes()


# --- steps that compare, and steps that rest ------------------------------------------------------------

TOGETHER, APART = [state([1, 0]), state([1, 0])], [state([1, 0]), state([0, 1])]


def walk(aggregator, pattern):
    """Carry out a step per letter: T for two leaves that are alike, A for two that are not, u as T, but from
    different starts.
    """
    steps = []
    for number, letter in enumerate(pattern, start=1):
        begun = aggregator.begin(APART if letter == "u" else [START] * 2)
        models = APART if letter == "A" else TOGETHER
        open_step = begun.receive(brought(models, [1, 3]), number).open()
        assert not any(open_step.questions)
        steps.append(open_step.finish())
    return steps


def drawn(steps):
    """A letter per step: c compared, s skipped, - rested; with two clusters C, S, =."""
    letters = ["-" if "compared" in s.facts else "s" if "skipped" in s.facts else "c" for s in steps]
    assert [letter == "c" for letter in letters] == [s.similarity is not None for s in steps]
    return "".join(
        letter.replace("-", "=").upper() if s.labels[1] else letter
        for letter, s in zip(letters, steps, strict=True)
    )


def test_by_default_every_step_compares():
    assert drawn(walk(cloud(), "T" * 9 + "A" * 9)) == "c" * 9 + "C" * 9
    assert "compared" not in walk(cloud(), "T")[0].facts


def test_once_five_comparisons_changed_nothing_every_third_step_compares():
    """Steps 1 to 5, 8, 11. The leaves part in step 9, which step 11 notices; then 12 to 16, and 19."""
    steps = walk(cloud(regroup_every=3), "T" * 8 + "A" * 12)
    assert drawn(steps) == "ccccc--c--" + "CCCCCC==C="
    assert steps[8].facts == {"compared": False}
    assert [offer["head"].tolist() for offer in steps[8].offers] == [[[0.25, 0.75]]] * 2
    assert steps[16].offers == [None, None]
    assert steps[10].facts["events"][0]["kind"] == "split"


def test_groups_that_differ_from_the_start_settle_too():
    """Step 1 parts the leaves, which is a change; 2 to 6 change nothing."""
    assert drawn(walk(cloud(regroup_every=4), "A" * 11)) == "CCCCCC" + "===C="


def test_while_a_change_waits_every_step_compares():
    """Patience 2. Step 5 finds two groups, step 6 does not: five more, 6 to 10. Steps 13 and 14 both do."""
    steps = walk(cloud(regroup_every=3, patience=2), "TTTTA" + "T" * 7 + "A" * 8)
    assert drawn(steps) == "ccccc" + "ccccc--" + "cC" + "CCCCC="
    assert [number for number, step in enumerate(steps, start=1) if "candidate" in step.facts] == [5, 13]


def test_a_comparison_that_could_not_be_made_remains_due():
    """Neither counts among the five (steps 3, 4) nor is put off by two steps (steps 10, 11)."""
    steps = walk(cloud(signal="update", regroup_every=3), "TTuuTTTuuuuTTTT")
    assert drawn(steps) == "ccss" + "ccc--ssc--c"


@pytest.mark.slow
def test_a_step_that_rests_asks_nobody_and_makes_no_probe():
    """Groups are in force from step 2 on, 3 to 7 change nothing; 8, 9 and 11 rest."""
    aggregator = split_cloud(probe_every=1, regroup_every=3)
    asked, probed = [], []
    for _ in range(9):
        received = met(aggregator, start=False)
        start = received.probe_start()
        probe = None if start is None else Probe(start, four(3))
        open_step = received.open(probe)
        answers = answered([0, 0, 1, 1]) if any(open_step.questions) else None
        step = open_step.finish(answers)
        assert step.labels.tolist() == [0, 0, 1, 1]
        assert step.common_start is (probe is not None)
        asked.append(answers is not None)
        probed.append(probe is not None)
    assert asked == probed == [True] * 5 + [False, False, True, False]


@pytest.mark.parametrize("method", ["kmeans", "flhc", "cfl"])
def test_methods_that_group_when_it_is_time_see_every_step(method):
    own = {} if method == "cfl" else {"split_round": 8}
    count = "2" if method == "kmeans" else "threshold"
    aggregator = cloud(method=method, method_args=json.dumps(own), count=count, regroup_every=5)
    steps = []
    for number in range(1, 10):
        begun = aggregator.begin([START] * 2)
        steps.append(begun.receive(brought([state([3, 1]), state([-1, 1])], [1, 1]), number).open().finish())
    assert not any("compared" in step.facts for step in steps)
    first = 1 if method == "cfl" else 8
    assert [int(step.labels[1]) for step in steps] == [0] * (first - 1) + [1] * (10 - first)


@pytest.mark.parametrize("after", range(16))
def test_a_restored_cloud_compares_in_the_same_steps(after):
    pattern = "TTTTA" + "T" * 7 + "A" * 4
    whole = drawn(walk(cloud(regroup_every=3, patience=2), pattern))
    stopped = cloud(regroup_every=3, patience=2)
    before = walk(stopped, pattern[:after])
    again = cloud(regroup_every=3, patience=2)
    again.memory.restore(stopped.memory.states(), json.loads(json.dumps(stopped.memory.facts())))
    assert drawn(before + walk(again, pattern[after:])) == whole


class Extrapolates(CloudPart):
    """One model for all, beyond the leaves' mean, in all entries or in the trainable ones alone."""

    def __init__(self, everything=False):
        self.everything = everything

    def group(self, cloud):
        names = cloud.models[0] if self.everything else cloud.parameter_names
        moved = {name: -3 * cloud.models[0][name] for name in names}
        return Family(np.ones((len(cloud.models), 1)), [{**cloud.models[0], **moved}])


@pytest.mark.parametrize("everything", [False, True])
def test_a_negative_variance_is_the_methods_fault_and_not_that_of_the_clients(everything):
    """Without a refusal here, every client would be refused in the next round."""
    name = f"{__name__}:Extrapolates"
    config = ClusterConfig(method=name, method_args=json.dumps({"everything": everything}))
    server = CloudAggregator(config, CloudSetting(NAMES, variances=("running_var",)))
    models = [state([1, 0]), state([0, 1])]
    if not everything:
        assert step_of(server, [START] * 2, models, [1, 1]).offers[0]["head"].tolist() == [[-3.0, 0.0]]
        return
    with pytest.raises(ConfigError, match=r"Extrapolates must return models with variances .* with -3; "):
        step_of(server, [START] * 2, models, [1, 1])
