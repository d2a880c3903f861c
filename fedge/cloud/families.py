"""Offers from a family of models: each leaf gets its own mixture. Shape letters: S leaves, K models."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedge.cloud.rule import CloudRule
from fedge.leaf.strategies.aggregation import Contribution, mean_of
from fedge.states.averaging import State, weighted_mean


def family_models(
    memberships: np.ndarray,
    contributions: Sequence[Contribution],
    rule: CloudRule | None = None,
    global_round: int = 1,
) -> list[State | None]:
    """w_k = Σ_e Π_ek n_e w_e / Σ_e Π_ek n_e, or by the cloud's rule under these weights.

    Args:
        memberships: Π (S, K).
        contributions: contribution of each leaf.
        rule: of the cloud; None for the mean.
        global_round: 1, 2, …

    Returns:
        K models; None for a model in which no leaf has a share, or too few for the rule.
    """
    models: list[State | None] = []
    for number, shares in enumerate(memberships.T):
        members = [_scale(c, float(s)) for c, s in zip(contributions, shares, strict=True) if s > 0]
        if not members:
            models.append(None)
        elif rule is None or len(members) == 1:
            models.append(mean_of(members))
        else:
            key = (-memberships.shape[1], number)  # no group of leaves has a negative number
            models.append(rule.combined(key, members, global_round))
    return models


def _scale(contribution: Contribution, share: float) -> Contribution:
    """A leaf's contribution with a share of its weight."""
    if share == 1:
        return contribution
    parts = tuple(_scale(part, share) for part in contribution.parts)
    return replace(contribution, weight=contribution.weight * share, parts=parts)


def family_offers(memberships: np.ndarray, models: Sequence[State | None]) -> list[State | None]:
    """Σ_k Π_ek w_k per leaf; one object for equal memberships, None if a model is missing.

    Args:
        memberships: Π (S, K).
        models: K.
    """
    cache: dict[bytes, State | None] = {}
    offers = []
    for row in memberships:
        key = row.tobytes()
        if key not in cache:
            cache[key] = _mixture(row, models)
        offers.append(cache[key])
    return offers


def _mixture(row: np.ndarray, models: Sequence[State | None]) -> State | None:
    members = [(model, float(share)) for model, share in zip(models, row, strict=True) if share > 0]
    states = [model for model, _ in members if model is not None]
    if len(states) < len(members):
        return None
    return states[0] if len(states) == 1 else weighted_mean(states, [share for _, share in members])


def offers_of_family(
    memberships: np.ndarray,
    models: Sequence[State] | None,
    contributions: Sequence[Contribution],
    rule: CloudRule | None,
    global_round: int,
    keep: Callable[[State], State],
) -> tuple[list[State | None], dict[str, Any]]:
    """Offer to each leaf, and facts of the step.

    The only member of a model is on its own and gets no offer.

    Args:
        memberships: Π (S, K).
        models: w_k as a method made them; None for the mean, or the rule's result.
        contributions: contribution of each leaf.
        rule: of the cloud; None for the mean.
        global_round: 1, 2, …
        keep: stores large states in files or in memory.
    """
    all_models: Sequence[State | None] = models or family_models(
        memberships, contributions, rule, global_round
    )
    offers = family_offers(memberships, [None if model is None else keep(model) for model in all_models])
    if models is None:
        for leaf, row in enumerate(memberships):
            sole_model = np.flatnonzero(row == 1)
            if len(sole_model) and np.count_nonzero(memberships[:, sole_model[0]]) == 1:
                offers[leaf] = None
    if rule is not None:
        rule.end_step(offers, contributions)
        rule.keep_states(keep)
    missing = [k for k, model in enumerate(all_models) if model is None]
    failed = {} if rule is None else rule.failures()
    return offers, ({"models_without_leaves": missing} if missing else {}) | failed
