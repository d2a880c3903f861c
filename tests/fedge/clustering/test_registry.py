"""Code of the user's that groups leaves: what it may return, and what is said when it fails."""

import json

import numpy as np
import pytest
import torch

from fedge.cloud.step import CloudStep
from fedge.clustering import CloudPart
from fedge.clustering.likeness.evidence import Evidence, NotComparable
from fedge.clustering.registry import (
    NEEDS,
    OF_THE_STEP,
    Family,
    Grouping,
    cloud_model_count,
    method_named,
    sent_quantities,
)
from fedge.clustering.signals import similarity_of
from fedge.config.registers.groupings import GROUPINGS, SIGNALS
from fedge.config.registers.option import ConfigError
from fedge.config.registers.traits import BY_THRESHOLD_ONLY
from fedge.config.sections.cluster import ClusterConfig
from fedge.records.recorder import _cluster_entry

MODELS = [{"head": np.full((2, 2), float(leaf), np.float32)} for leaf in range(3)]


def evidence():
    return Evidence(MODELS, MODELS, [1.0] * 3, ("head",))


def grouped(function, **options):
    """Labels found by a method of the user's."""
    name = GROUPINGS.given(function)
    try:
        config = ClusterConfig(method=name, **options)
        return method_named(config).group(evidence(), config, None)
    finally:
        GROUPINGS.forget(name)


def compared(function):
    """Similarity found by a signal of the user's."""
    name = SIGNALS.given(function)
    try:
        return similarity_of(name, evidence())
    finally:
        SIGNALS.forget(name)


class Echo(CloudPart):
    """Asks about the models that it has been given, and offers them."""

    def ask(self, cloud):
        return [
            {"own": model, "next": other}
            for model, other in zip(cloud.models, cloud.models[1:] + cloud.models[:1], strict=True)
        ]

    def group(self, cloud):
        return Family(np.eye(3), cloud.models)


def test_a_model_handed_back_is_the_leafs_own(monkeypatch):
    """Bytes are counted by it: what a leaf has is not sent, wherever models are kept."""
    monkeypatch.setattr(GROUPINGS, "is_own", lambda _: False)
    monkeypatch.setattr(GROUPINGS, "load", lambda _: Echo)
    method, given = method_named(ClusterConfig(method="phefl")), evidence()
    for leaf, roles in enumerate(method.ask(given)):
        assert roles["own"] is MODELS[leaf]
        assert roles["next"] is MODELS[(leaf + 1) % 3]
    models = method.group(given, ClusterConfig(), None).models
    assert [model is own for model, own in zip(models, MODELS, strict=True)] == [True] * 3


def zero(by_hand):
    by_hand.models[0]["head"][...] = 0


def fails(*_):
    raise ArithmeticError("one\nand two")


def test_labels_alone_are_a_grouping_and_are_numbered_by_first_appearance():
    found = grouped(lambda evidence, config, before: [7, 3, 7])
    assert isinstance(found, Grouping)
    assert (found.labels.tolist(), found.similarity) == ([0, 1, 0], None)


@pytest.mark.parametrize(
    ("facts", "telling"),
    [
        ({"similarity": np.eye(2)}, r"similarity of shape \(3, 3\), or None"),
        ({"similarity": [["a"] * 3] * 3}, r"similarity of shape \(3, 3\), or None"),
        ({"facts": {"x": np.float32(1)}}, "facts that JSON can hold"),
        ({"facts": [3]}, "facts that JSON can hold"),
        ({"kept": {"a": np.arange(3)}}, "kept that JSON can hold"),
        ({"kept": {"a": object()}}, "kept that JSON can hold"),
        ({"kept": {"a": {3: 0.5}}}, "kept that comes back from JSON as it was"),
        ({"kept": {"a": [(0, 1)]}}, "kept that comes back from JSON as it was"),
        ({"kept": {3: 0.5}}, "kept that comes back from JSON as it was"),
    ],
)
@pytest.mark.parametrize("is_family", [False, True])
def test_what_no_file_can_hold_is_refused_by_name(facts, telling, is_family):
    """Otherwise the run would end after its first round, without a name."""
    if is_family and "kept" in facts:
        return
    labels = np.array([0, 1, 0])
    found = Family(np.eye(3), **facts) if is_family else Grouping(labels, **{"similarity": None, **facts})
    with pytest.raises(ConfigError, match=rf"^cluster\.method .* must return a? ?{telling}.*fix it$"):
        grouped(lambda evidence, config, before: found)


def test_a_similarity_in_lists_becomes_an_array():
    found = grouped(lambda evidence, config, before: Grouping([0, 1, 0], [[1, 2, 3]] * 3))
    assert found.similarity.tolist() == [[1, 2, 3]] * 3


@pytest.mark.parametrize("returned", [None, [0], [0.0, 1.0, 1.0], ["a", "b", "c"], [[0, 1, 1]]], ids=str)
def test_what_are_no_labels_is_refused_by_name(returned):
    with pytest.raises(ConfigError, match=r"must return a whole number for each of 3 leaves, but returned"):
        grouped(lambda evidence, config, before: returned)


def test_a_matrix_of_numbers_of_any_kind_is_a_signal():
    found = compared(lambda evidence: [[1, 0, 0], [0, 1, 1], [0, 1, 1]])
    assert found.dtype == np.float64
    assert found[1, 2] == 1


@pytest.mark.parametrize(
    "returned",
    [None, [[1.0]], np.full((3, 3), np.nan), [["a"] * 3] * 3, np.arange(9.0).reshape(3, 3), np.eye(3) * 1j],
    ids=["nothing", "too small", "not a number", "text", "not symmetric", "complex"],
)
def test_what_is_no_comparison_is_refused_by_name(returned):
    with pytest.raises(ConfigError, match=r"cluster\.signal .* must return a symmetric \(3, 3\) matrix"):
        compared(lambda evidence: returned)


@pytest.mark.parametrize(
    ("carry_out", "option"),
    [(grouped, "cluster.method"), (compared, "cluster.signal")],
    ids=["method", "signal"],
)
def test_code_that_fails_is_named_with_its_line(carry_out, option):
    with pytest.raises(ConfigError) as caught:
        carry_out(fails)
    said = r"failed: ArithmeticError: one and two \(\S+test_registry\.py, line \d+\); fix it$"
    assert caught.match(rf"^{option} \S+:fails {said}")


@pytest.mark.parametrize("carry_out", [grouped, compared], ids=["method", "signal"])
def test_losses_that_nobody_was_asked_for_are_said_to_be_needed(carry_out):
    with pytest.raises(ConfigError, match=r'ValueError: the method must need "cross-losses": needs ='):
        carry_out(lambda evidence, *_: evidence.cross.losses)


@pytest.mark.parametrize("carry_out", [grouped, compared], ids=["method", "signal"])
def test_models_cannot_be_changed_by_mistake(carry_out):
    with pytest.raises(ConfigError, match="ValueError: assignment destination is read-only"):
        carry_out(lambda evidence, *_: zero(evidence))
    assert [float(model["head"].sum()) for model in MODELS] == [0, 4, 8]


@pytest.mark.parametrize("carry_out", [grouped, compared], ids=["method", "signal"])
def test_what_cannot_be_compared_yet_goes_on_as_such(carry_out):
    def not_yet(*_):
        raise NotComparable("too early")

    with pytest.raises(NotComparable, match="too early"):
        carry_out(not_yet)


def test_what_clients_send_follows_from_what_a_method_needs():
    sent = {
        name: sent_quantities(ClusterConfig(method=name, count="2")) for name in ("clove", "feddrift", "ifca")
    }
    assert list(sent.values()) == [NEEDS["pool"].sent] * 3
    assert sent_quantities(ClusterConfig(method="flux")) == NEEDS["description"].sent
    assert sent_quantities(ClusterConfig(method="cfl")) == {}
    assert sent_quantities(ClusterConfig(signal="cross-loss")) == NEEDS["cross-losses"].sent
    assert sent_quantities(ClusterConfig(method="flux", enabled=False)) == {}
    assert sent_quantities(ClusterConfig(method="soft-family")) == NEEDS["dispersion"].sent
    assert [*sent_quantities(ClusterConfig(method="phefl"))] == [
        "losses and scores of models that the method asks about"
    ]


def test_every_method_needs_only_what_is_declared():
    for name in GROUPINGS.names:
        counted = {} if GROUPINGS.has(name, BY_THRESHOLD_ONLY) else {"count": "2"}
        assert method_named(ClusterConfig(method=name, **counted)).needs(ClusterConfig()) <= set(NEEDS)


def test_the_clouds_own_models_are_counted():
    assert cloud_model_count(ClusterConfig(method="clove", count="3")) == 3
    assert cloud_model_count(ClusterConfig(method="kmeans", count="3")) == 0
    assert cloud_model_count(ClusterConfig(method="ifca", count="3", enabled=False)) == 0


def _taking(takes):
    def method(evidence, config, before):
        return Grouping(np.zeros(3, np.int64), None, takes=takes)

    return method


class Taking(CloudPart):
    def group(self, cloud):
        return Grouping(np.zeros(3, np.int64), None, takes=np.zeros(3, np.int64))


@pytest.mark.parametrize("method", [_taking(np.zeros(3, np.int64)), Taking])
def test_takes_without_models_of_the_clouds_is_refused(method):
    """Leaves would be offered their cluster's mean, without a word on it."""
    with pytest.raises(ConfigError, match='must need "pool" to say which of the cloud\'s models leaves take'):
        grouped(method)


@pytest.mark.parametrize("takes", [None, [0, 1], [0, 1, 2], [0, 1, -1], [0.0, 1.0, 0.0], "all"])
def test_takes_name_one_of_the_clouds_models_per_leaf(takes):
    method = _taking(takes)
    method.needs = {"pool"}
    with pytest.raises(ConfigError, match=r"as takes a model 0\.\.1 of the cloud's for each of 3"):
        grouped(method, count="2")


def test_models_of_the_clouds_are_counted_in_options():
    method = _taking(np.array([0, 1, 1]))
    method.needs = {"pool"}
    assert grouped(method, count="2").takes.tolist() == [0, 1, 1]
    with pytest.raises(ConfigError, match=r"cluster\.count must be the number of the cloud's models"):
        grouped(method)


@pytest.mark.parametrize(
    ("returned", "telling"),
    [
        (-np.ones(3, dtype=np.int64), "labels of 0 or more"),
        ([0, 0, -1], "labels of 0 or more"),  # noise, as a density-based method says it
        ([[0, 1], [2]], "a whole number for each"),
        (([0, 1, 1], np.eye(3)), "a whole number for each"),
        (Grouping([[0, 1], [2]], None), "a whole number for each"),
        (Grouping(np.arange(3), np.full((3, 3), np.nan)), "similarity of finite numbers"),
        (Grouping(np.arange(3), None, memberships=np.ones((3, 2))), "rows that sum to 1"),
        (Family([[1], [0, 1], [1]]), "rows that sum to 1"),
        (Grouping(np.arange(3), None, models=MODELS), "return a fedge.clustering.Family"),
        *(
            (Grouping(np.arange(3), None, {key: 1}), f"names of its own.*'{key}'")
            for key in sorted(OF_THE_STEP)
        ),
        *(
            (Family(np.eye(3), models=[*MODELS[:2], wrong]), "models with the entries")
            for wrong in (
                None,
                {},
                {"head": np.zeros(3)},
                {"head": np.full((2, 2), np.nan)},
                {"head": np.full((2, 2), "a")},
                {"head": [[0], [0, 1]]},
                {"hed": np.zeros((2, 2))},
                {"head": np.zeros((2, 2)), "more": np.zeros(1)},
            )
        ),
    ],
)
def test_no_answer_is_taken_for_another(returned, telling):
    """Each of them would become some grouping in silence, or end the run later without a name."""
    with pytest.raises(ConfigError, match=rf"^cluster\.method .*{telling}[^\n]*$"):
        grouped(lambda evidence, config, before: returned)


@pytest.mark.parametrize("cast", [np.float64, torch.tensor, lambda a: torch.tensor(a, requires_grad=True)])
def test_a_familys_models_are_cast_to_the_leaves(cast):
    models = [{"head": cast(model["head"] * 0.5)} for model in MODELS]
    found = grouped(lambda evidence, config, before: Family(np.eye(3), models=models)).models
    assert all(type(m["head"]) is np.ndarray and m["head"].dtype == np.float32 for m in found)
    assert all((m["head"] == 0.5 * leaf["head"]).all() for m, leaf in zip(found, MODELS, strict=True))


def test_facts_are_json_of_any_reader():
    facts = {"gap": float("nan"), "of": [1.0, {"most": float("inf")}]}
    found = grouped(lambda evidence, config, before: Grouping(np.arange(3), None, facts)).facts
    assert json.loads(json.dumps(found, allow_nan=False)) == {"gap": None, "of": [1.0, {"most": None}]}


def test_own_facts_keep_off_what_a_line_says_itself():
    """Of a step as it is recorded; a key added to the line belongs to `OF_THE_STEP`."""
    step = CloudStep(
        signal="", labels=np.arange(3), similarity=None, tau=0.0, common_start=True, offers=[],
        method="", memberships=np.eye(3),
    )  # fmt: skip
    assert set(_cluster_entry(1, step)) <= OF_THE_STEP
