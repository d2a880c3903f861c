"""The cloud's rule: worked out by hand, over groups that change, and gone on with exactly."""

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, Krum

from fedge.cloud.rule import CloudRule, RuleMaker
from fedge.leaf.strategies.aggregation import Contribution
from fedge.leaf.strategies.rules import ExactFedAvg
from fedge.states.records import from_record, to_record

EVERYONE = {"fraction_train": 1.0, "min_train_nodes": 1, "min_available_nodes": 1}


def model(value):
    return {"w": np.full(2, value, np.float32), "count": np.array(3)}


def brought(*values, weights=None):
    weights = weights or [1.0] * len(values)
    return [Contribution(i, model(v), w, 1) for i, (v, w) in enumerate(zip(values, weights, strict=True))]


def rule_of(make, needed=2, first=0.0):
    rule = CloudRule(RuleMaker(make, needed, ("w",)))
    rule.set_initial_model(model(first))
    return rule


def step(rule, labels, values, global_round=1, weights=None):
    offers, facts = rule.offers(
        np.array(labels), brought(*values, weights=weights), global_round, lambda s: s
    )
    return [None if offer is None else float(offer["w"][0]) for offer in offers], facts


def test_momentum_by_hand():
    """x = 0; mean 2, so v = 2, x = 2; mean 3, so Δ = 1, v = 0.5 · 2 + 1 = 2, x = 4."""
    rule = rule_of(lambda: FedAvgM(server_momentum=0.5, **EVERYONE))
    assert step(rule, [0, 0], [1, 3]) == ([2, 2], {})
    assert step(rule, [0, 0], [2, 4], 2)[0] == [4, 4]


def test_leaves_count_by_their_weights():
    """(3 · 1 + 1 · 5) / 4 = 2."""
    assert step(rule_of(lambda: FedAvgM(**EVERYONE)), [0, 0], [1, 5], weights=[3, 1])[0] == [2, 2]


def test_adam_by_hand():
    """Δ = 1: m = 0.1, v = 0.01; Flower corrects both biases as of its second step: η m̂ / (√v̂ + τ)."""
    rule = rule_of(lambda: FedAdam(eta=0.1, eta_l=0.1, beta_1=0.9, beta_2=0.99, tau=0.1, **EVERYONE))
    m, v = 0.1, 0.01
    made = step(rule, [0, 0], [1, 1])[0][0]
    rate = 0.1 * np.sqrt(1 - 0.99**2) / (1 - 0.9**2)
    assert made == pytest.approx(rate * m / (np.sqrt(v) + 0.1), rel=1e-4)


def test_a_group_of_other_leaves_begins_anew_from_what_they_were_offered():
    """All to 2 with v = 2; then {0, 1} and {2}: Δ of the two is 1 from 2, without momentum: 3. One is alone.

    Then all at once from (3 + 3 + 7) / 3, where the mean is 13 / 3, too.
    """
    rule = rule_of(lambda: FedAvgM(server_momentum=0.5, **EVERYONE))
    assert step(rule, [0, 0, 0], [1, 2, 3])[0] == [2, 2, 2]
    assert step(rule, [0, 0, 1], [3, 3, 7], 2)[0] == [3, 3, None]
    assert step(rule, [0, 0, 0], [3, 3, 7], 3)[0] == pytest.approx([13 / 3] * 3)


def test_a_group_steps_from_a_model_given_from_above_with_its_momentum():
    """v = 2, x = 2; given 7: mean 8, so v = 0.5 · 2 + 1 = 2, x = 9. From 4 new groups begin, too."""
    rule = rule_of(lambda: FedAvgM(server_momentum=0.5, **EVERYONE))
    step(rule, [0, 0, 0], [2, 2, 2])
    rule.step_from(model(7), 3)
    assert step(rule, [0, 0, 0], [8, 8, 8], 2)[0] == [9, 9, 9]
    rule.step_from(model(4), 3)
    assert step(rule, [0, 0, 1], [5, 5, 1], 3)[0] == [5, 5, None]


def test_too_few_models_for_the_rule():
    """Krum among two of five leaves: they keep their own, and the step says so."""
    rule = rule_of(lambda: Krum(num_malicious_nodes=0, **EVERYONE), needed=3)
    offers, facts = step(rule, [0, 0, 0, 1, 1], [1, 1, 9, 4, 5])
    assert offers == [1, 1, 1, None, None]
    assert facts == {"too_few_for_rule": [[3, 4]]}


def test_the_mean_as_a_rule_is_the_mean():
    assert step(rule_of(lambda: ExactFedAvg(**EVERYONE)), [0, 0], [1, 4], weights=[1, 2])[0] == [3, 3]


@pytest.mark.parametrize(
    "make", [lambda: FedAvgM(server_momentum=0.9, **EVERYONE), lambda: FedAdam(**EVERYONE)]
)
def test_it_goes_on_exactly(make):
    """Groups change in the second step; the third is by a rule that was restored after that, too."""
    rule, other = rule_of(make), rule_of(make)
    for number, labels in enumerate([[0, 0, 0, 0], [0, 0, 1, 1]], start=1):
        step(rule, labels, [1, 2, 3, 5], number)
    states, facts = rule.states(), rule.facts()
    other.restore({name: dict(state) for name, state in states.items()}, facts)
    assert len([name for name in states if name.startswith("rule-model-")]) == 2
    assert step(other, [0, 0, 1, 1], [2, 2, 4, 7], 3) == step(rule, [0, 0, 1, 1], [2, 2, 4, 7], 3)
    assert step(other, [0, 0, 0, 0], [2, 2, 4, 7], 4) == step(rule, [0, 0, 0, 0], [2, 2, 4, 7], 4)


class Overshoots(FedAvg):
    """Goes three below the mean."""

    def aggregate_train(self, server_round, replies):
        made, metrics = super().aggregate_train(server_round, replies)
        return to_record({n: (a - 3).astype(a.dtype) for n, a in from_record(made).items()}), metrics


@pytest.mark.parametrize("variances", [(), ("other",), ("w",)])
def test_a_rule_cannot_make_a_variance_negative(variances, caplog):
    """Mean 2, made −1: as a variance it would be NaN at all clients; zero is one. Their own models stay."""
    rule = CloudRule(RuleMaker(lambda: Overshoots(**EVERYONE), 2, ("w",), variances))
    rule.set_initial_model(model(0))
    assert step(rule, [0, 0], [3, 3])[0] == [0, 0]
    if "w" not in variances:
        assert step(rule, [0, 0], [1, 3], 2)[0] == [-1, -1]
        return
    assert step(rule, [0, 0], [1, 3], 2) == ([None, None], {"rule_failed": [[0, 1]]})
    assert "entry 'w' of a group's model, a variance, would be negative" in caplog.text


class Fails(FedAvg):
    """Means; from models above a bound nothing that can be used."""

    def __init__(self, how, **kwargs):
        super().__init__(**kwargs)
        self.how = how

    def aggregate_train(self, server_round, replies):
        made, metrics = super().aggregate_train(server_round, replies)
        if max(a.max() for a in from_record(made).values()) < 10:
            return made, metrics
        if self.how == "raises":
            raise KeyError("w")
        if self.how == "another shape":
            return to_record({"w": np.zeros(7, np.float32)}), metrics
        if self.how == "another name":
            return to_record({"x": np.zeros(1, np.float32)}), metrics
        return to_record({n: np.full_like(a, self.how) for n, a in from_record(made).items()}), metrics


@pytest.mark.parametrize("how", ["raises", "another shape", "another name", np.nan, np.inf])
def test_a_group_on_which_the_rule_fails_keeps_its_models_and_the_others_get_theirs(how, caplog):
    """One leaf's huge finite model must not end the others' run (contract C12); the next step begins anew."""
    rule = rule_of(lambda: Fails(how, **EVERYONE))
    labels = [0, 0, 1, 1]
    assert step(rule, labels, [1, 3, 1, 99]) == ([2, 2, None, None], {"rule_failed": [[2, 3]]})
    assert "global round 1: cloud.rule cannot combine the models of children 2, 3, which keep" in caplog.text
    assert step(rule, labels, [1, 3, 1, 5], 2) == ([2, 2, 3, 3], {})
