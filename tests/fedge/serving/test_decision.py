"""Two leaves with two clients each whose evaluations are written down here."""

import math

import numpy as np
import pytest
from evaluations import classified
from flwr.serverapp.strategy import FedAvg

from fedge.cloud.offers import Offer
from fedge.config.sections.serving import GateConfig
from fedge.exchange.round_context import LEAF, OWN_LINE
from fedge.leaf.leaf import Leaf
from fedge.serving.decision import (
    best_offer,
    candidates,
    gate_decision,
    is_predetermined,
    is_tentative,
    paired_evaluation,
    serve_decision,
)
from fedge.serving.gate import Paired

TENTATIVE = GateConfig(rule="after-round")


def state(value):
    return {"w": np.array([value], np.float32)}


def evaluation(right, windows=10, loss=1.0, beside_own=None):
    """An evaluation of two classes, all windows of class 0."""
    return classified(np.array([[right, windows - right], [0, 0]]), loss, beside_own)


def reply(own, **others):
    """A client's evaluations on 10 windows: right of the own model; role=(only own, only this)."""
    found = {("own", "val"): evaluation(own)}
    for role, (only_own, only_this) in others.items():
        right = own - only_own + only_this
        found[role.replace("_", "-"), "val"] = evaluation(right, beside_own=(only_own, only_this))
    return found


def leaf():
    return Leaf(0, {0: 30, 1: 10}, state(1), ["w"], FedAvg(), scaffold_levels=0)


OFFER = Offer(1.0, state(5))


def test_pairs_are_pooled_over_clients():
    """Client 0: own 8 of 10, 2 only own, 1 only offered. Client 1: 6, 0, 3. Both: 6 + 6 = 12."""
    evaluated = [reply(8, offered=(2, 1)), reply(6, offered=(0, 3))]
    assert paired_evaluation(evaluated, "offered") == Paired(12, 2, 4, 20)
    decision = gate_decision(GateConfig(), ("offered", OFFER), False, evaluated)
    assert (decision.decision, decision.score_own, decision.score_offered) == ("accepted", 0.7, 0.8)
    assert (decision.serves_offer, decision.role, decision.blend) == (True, "offered", 1.0)


def test_a_worse_offer_is_turned_down_and_says_why():
    evaluated = [reply(8, offered=(2, 1)), reply(6, offered=(2, 0))]
    decision = gate_decision(GateConfig(), ("offered", OFFER), False, evaluated)
    assert (decision.decision, decision.serves_offer, decision.role) == ("rejected", False, "own")
    assert decision.pair == Paired(10, 4, 1, 20)
    lenient = gate_decision(GateConfig(rule="paired"), ("offered", OFFER), False, evaluated)
    assert (lenient.decision, lenient.role) == ("accepted", "offered")


def test_an_open_gate_takes_every_offer_whatever_the_rule():
    evaluated = [reply(9, offered=(9, 0))]
    for rule in ("published", "after-round", "one-standard-error", "paired"):
        decision = gate_decision(GateConfig(enabled=False, rule=rule), ("offered", OFFER), False, evaluated)
        assert (decision.decision, decision.serves_offer, decision.role) == ("off", True, "offered")
        assert (decision.score_own, decision.score_offered) == (0.9, 0.0)


@pytest.mark.parametrize("config", [GateConfig(), GateConfig(enabled=False), TENTATIVE])
def test_without_an_offer_or_a_evaluation_there_is_nothing_to_decide(config):
    decision = gate_decision(config, None, False, [reply(4)])
    assert (decision.decision, decision.score_own, decision.serves_offer) == ("off", 0.4, False)
    assert (decision.score_offered, decision.pair, decision.role) == (None, None, "own")
    nobody = gate_decision(config, ("offered", OFFER), False, [])
    assert math.isnan(nobody.score_own)
    takes = not config.enabled  # without a gate a leaf stays with its cluster, whoever has evaluated
    role = "offered" if takes else "own"
    assert (nobody.decision, nobody.serves_offer, nobody.role) == ("off", takes, role)
    assert gate_decision(config, None, False, []).role == "own"
    assert gate_decision(config, ("offered", OFFER), True, []).role == "own-line"


def test_the_best_of_several_offers():
    """Right of 20: λ = 0 has 12, λ = 0.5 has 14, λ = 1 has 14 with a higher loss."""
    offers = {f"offered-{b:g}": Offer(b, state(b)) for b in (0.0, 0.5, 1.0)}
    evaluated = [reply(5, offered_0=(0, 1), offered_1=(0, 2)), reply(5, offered_0=(0, 1), offered_1=(0, 2))]
    for client in evaluated:
        client["offered-0.5", "val"] = evaluation(7, loss=0.5, beside_own=(0, 2))
    role, offer = best_offer(offers, evaluated)
    assert (role, offer.blend) == ("offered-0.5", 0.5)
    for client in evaluated:
        client["offered-1", "val"] = evaluation(7, loss=0.5, beside_own=(0, 2))
    assert best_offer(offers, evaluated)[1].blend == 1.0  # all alike: the most of the cluster's
    assert best_offer(offers, [])[1].blend == 1.0
    assert best_offer({"offered": OFFER}, []) == ("offered", OFFER)
    assert best_offer({}, evaluated) is None


def test_the_model_that_is_taken_is_served_and_trained_on():
    own = leaf()
    models = candidates(own, {"offered": OFFER}, GateConfig())
    assert models == {"own": own.model, "offered": OFFER.model}
    taken = gate_decision(GateConfig(), ("offered", OFFER), False, [reply(5, offered=(0, 1))])
    serve_decision(own, taken, OFFER, models, tentatively=False)
    assert own.model is OFFER.model
    assert own.models.served is OFFER.model
    assert own.models.own_line is None


def test_offers_taken_tentatively_round_by_round():
    """Round 1: no own line yet; the offer (5) becomes the model, what is served (1) the own line.

    Round 2: trained, they are 6 and 2. The trained offer has 1 window more right: it is served. A new offer
    (7) is taken tentatively.
    Round 3: trained, they are 8 and 6.5; this time the own line has 3 windows more right and is served.
    No new offer: the leaf goes on with its own line alone.
    """
    own = leaf()
    assert is_tentative(TENTATIVE)
    assert not is_tentative(GateConfig(rule="after-round", enabled=False))
    models = candidates(own, {"offered": OFFER}, TENTATIVE)
    assert list(models) == ["own"]  # what the offer does untrained is not asked
    first = gate_decision(TENTATIVE, ("offered", OFFER), False, [reply(5)])
    assert (first.decision, first.score_offered, first.blend) == ("off", None, 1.0)
    serve_decision(own, first, OFFER, models, tentatively=True)
    assert (own.model["w"], own.models.own_line["w"], own.models.served["w"]) == (5, 1, 1)

    own.models.trained(LEAF, state(6))
    own.models.trained(OWN_LINE, state(2))
    models = candidates(own, {"offered": Offer(1.0, state(7))}, TENTATIVE)
    assert list(models) == ["own", "own-line"]
    second = gate_decision(TENTATIVE, ("offered", OFFER), True, [reply(5, own_line=(2, 1))])
    assert (second.decision, second.role, second.serves_offer) == ("accepted", "own", True)
    assert (second.score_own, second.score_offered) == (0.4, 0.5)
    assert second.pair == Paired(3, 1, 2, 10)
    serve_decision(own, second, Offer(1.0, state(7)), models, tentatively=True)
    assert (own.model["w"], own.models.own_line["w"], own.models.served["w"]) == (7, 6, 6)

    own.models.trained(LEAF, state(8))
    own.models.trained(OWN_LINE, state(6.5))
    models = candidates(own, {}, TENTATIVE)
    third = gate_decision(TENTATIVE, None, True, [reply(5, own_line=(1, 4))])
    assert (third.decision, third.role, third.serves_offer) == ("rejected", "own-line", False)
    assert third.pair == Paired(4, 4, 1, 10)
    serve_decision(own, third, None, models, tentatively=True)
    assert (own.model["w"], own.models.served["w"]) == (6.5, 6.5)
    assert own.models.own_line is None


def test_several_offers_are_evaluated_before_one_is_taken_tentatively():
    own = leaf()
    offers = {f"offered-{b:g}": Offer(b, state(b)) for b in (0.0, 1.0)}
    assert list(candidates(own, offers, TENTATIVE)) == ["own", "offered-0", "offered-1"]


def test_what_is_foreseen():
    """Nothing is offered; or the one offer is taken in any case. A line beside is always compared."""
    one = {"offered": Offer(1.0, state(2))}
    several = {**one, "offered-0.5": Offer(0.5, state(3))}
    gate, off = GateConfig(), GateConfig(enabled=False)
    assert [is_predetermined(gate, offers, False) for offers in ({}, one, several)] == [True, False, False]
    assert [is_predetermined(off, offers, False) for offers in ({}, one, several)] == [True, True, False]
    assert not is_predetermined(off, {}, True)
