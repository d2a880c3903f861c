"""Decision of a leaf after a global round, carried out: the gate's answer becomes the next round's models.

It selects one of several offers (`fedge.cloud.offers`), lets the gate (`fedge.serving.gate`) decide, and
applies the decision. With gate.rule = "after-round" the gate decides one global round later:

    round r       the leaf takes the offer tentatively as its model, and its served model as its own line
    round r + 1   both are trained by the leaf's clients, on the same windows in the same order; the cloud
                  sees the model started from the offer; the gate compares the two, and the better is served

so both models have been trained at this leaf when they are compared. This costs a second training exchange
per leaf round, with twice the models up and down; the untrained offer is not evaluated. After any decision,
the next offer is again taken tentatively: even a leaf that rejects every offer sends the cloud the cluster's
model as trained by its clients, not a diverged model.
"""

import math
from collections.abc import Mapping, Sequence

from fedge.cloud.offers import Offer, Offers
from fedge.config.sections.serving import GateConfig
from fedge.exchange.evaluate import OWN, EvaluateReply, pool_evaluations
from fedge.exchange.round_context import OWN_LINE
from fedge.leaf.server import Server
from fedge.metrics.scores import counts_of
from fedge.serving import gate
from fedge.serving.gate import AnyPaired, GateResult, Paired, PairedScores
from fedge.states.averaging import State
from fedge.tasks.classification import CONFUSION
from fedge.tasks.task import total_sums


def is_tentative(config: GateConfig) -> bool:
    """Whether offers are trained for a round before the gate decides."""
    return config.is_tentative


def candidates(leaf: Server, offers: Offers, config: GateConfig) -> dict[str, State]:
    """The models evaluated by the leaf's clients, by role: its own and the offered ones.

    A single offer that is taken tentatively need not be evaluated first.
    """
    models = {OWN: leaf.model}
    if leaf.models.own_line is not None:
        models[OWN_LINE] = leaf.models.own_line
    if len(offers) > 1 or not is_tentative(config):
        models.update({role: offer.model for role, offer in offers.items()})
    return models


def is_predetermined(config: GateConfig, offers: Offers, has_own_line: bool) -> bool:
    """Whether no evaluation can change the model with which a leaf continues.

    Args:
        config: section `gate`.
        offers: offers to the leaf.
        has_own_line: as in `gate_decision`.
    """
    return not has_own_line and (not offers or (not config.enabled and len(offers) == 1))


def best_offer(offers: Offers, evaluated: Sequence[EvaluateReply]) -> tuple[str, Offer] | None:
    """The role and the offer with the best validation score, pooled; None without any offer.

    Ties are broken by the lower loss, then by the larger λ; without evaluations, all offers tie.
    """
    if len(offers) < 2:
        return next(iter(offers.items()), None)

    def merit(entry: tuple[str, Offer]) -> tuple[float, float, float]:
        role, offer = entry
        scores = pool_evaluations([j[role, "val"] for j in evaluated])
        if scores is None:
            return 0.0, 0.0, offer.blend
        # the loss of a diverged model may be NaN, which does not compare
        return scores.merit, -scores.loss if math.isfinite(scores.loss) else -math.inf, offer.blend

    return max(offers.items(), key=merit)


def gate_decision(
    config: GateConfig,
    offer: tuple[str, Offer] | None,
    has_own_line: bool,
    evaluated: Sequence[EvaluateReply],
) -> GateResult:
    """A leaf's gate decision; without any evaluation the leaf keeps its own model.

    If the gate is off, the leaf takes every offer regardless of evaluations, and stays with its cluster.

    Args:
        config: section `gate`.
        offer: role and offer under consideration, or None.
        has_own_line: whether the leaf's model started from an offer, with its own line beside.
        evaluated: per client, its evaluations of all models.
    """
    role, blend = (offer[0], offer[1].blend) if offer else (OWN, None)
    own = pool_evaluations([j[OWN, "val"] for j in evaluated])
    if own is None and offer is not None and not config.enabled and not has_own_line:
        return GateResult("off", float("nan"), None, serves_offer=True, blend=blend, role=role)
    if own is None:
        return GateResult("off", float("nan"), None, False, role=OWN_LINE if has_own_line else OWN)
    if is_tentative(config):
        if not has_own_line:
            return GateResult("off", own.score, None, serves_offer=False, blend=blend)
        return _result(paired_evaluation(evaluated, OWN_LINE).swapped, config, (OWN_LINE, OWN), blend)
    if offer is None:
        return GateResult("off", own.score, None, serves_offer=False)
    return _result(paired_evaluation(evaluated, role), config, (OWN, role), blend)


def _result(pair: AnyPaired, config: GateConfig, roles: tuple[str, str], blend: float | None) -> GateResult:
    """The decision between two models of roles (own, offered); a disabled gate takes every offer."""
    is_taken = not config.enabled or gate.takes_offer(pair, config)
    decision: gate.Decision = "off" if not config.enabled else "accepted" if is_taken else "rejected"
    return GateResult(
        decision,
        pair.score_own,
        pair.score_offered,
        is_taken,
        pair,
        blend,
        roles[1] if is_taken else roles[0],
    )


def paired_evaluation(evaluated: Sequence[EvaluateReply], role: str) -> AnyPaired:
    """Comparison of a role's model with the leaf's own on the validation windows of all clients."""
    pairs = []
    for evaluations in evaluated:
        pair = evaluations[role, "val"].differences
        assert pair is not None  # a reply without them has been refused
        pairs.append(pair)
    total, squares = (math.fsum(part) for part in zip(*pairs, strict=True))
    own_evaluations = [evaluations[OWN, "val"] for evaluations in evaluated]
    windows = sum(evaluation.windows for evaluation in own_evaluations)
    if own_evaluations[0].confusion is None:
        task = own_evaluations[0].task
        own_score = task.score(total_sums([evaluation.sums for evaluation in own_evaluations]))
        offered_score = task.score(total_sums([evaluations[role, "val"].sums for evaluations in evaluated]))
        return PairedScores(
            own_score, offered_score, total, squares, windows, task.scores[0].higher_is_better
        )
    only_own, only_offered = counts_of((total, squares))
    right = sum(int(evaluation.sums[CONFUSION].trace()) for evaluation in own_evaluations)
    return Paired(right - only_own, only_own, only_offered, windows)


def serve_decision(
    leaf: Server, decision: GateResult, offer: Offer | None, models: Mapping[str, State], tentatively: bool
) -> None:
    """Let a leaf serve the gate's choice, and continue with the choice or, tentatively, with an offer.

    Args:
        leaf: changes.
        decision: decision of its gate.
        offer: made in this round, or None.
        models: evaluated models, by role.
        tentatively: whether offers are trained for a round before the gate decides.
    """
    if decision.role == OWN:
        leaf.models.continue_with_own()
    else:
        leaf.models.continue_with(models[decision.role])
    if tentatively and offer is not None:
        leaf.models.take_tentatively(offer.model)
