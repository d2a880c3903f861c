"""Offers of the cloud to each leaf: its cluster's model, mixed with the model of all leaves.

    offer = λ · cluster model + (1 − λ) · global model

where the cluster model is the mean over the leaf's cluster and the global model the mean over all leaves.
λ = 1 is clustered averaging as published, λ = 0 hierarchical averaging (Liu et al. 2020, HierFAVG) whatever
the clusters. In between, clusters share a common part, like the interpolation for clients in Mansour et al.
2020, "Three Approaches for Personalization with Applications to Federated Learning". Several λ give several
offers, which the leaf's clients evaluate under separate roles.

A leaf may keep its own values of some entries of an offer: its BatchNorm (Li et al. 2021, "FedBN") or its
head (Collins et al. 2021, "FedRep"). Pure functions on arrays. Shape letter: S leaves.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from fedge.exchange.evaluate import OFFERED
from fedge.states.averaging import State, weighted_mean
from fedge.states.distinct import StateCache

GRID = (0.0, 0.25, 0.5, 0.75, 1.0)  # λ tried for cluster.blend = "auto"


@dataclass(frozen=True)
class Offer:
    """One model offered to a leaf.

    Attributes:
        blend: λ.
        model: the offered model.
    """

    blend: float
    model: State


Offers = dict[str, Offer]  # by role


def blends_of(blend: float | str) -> tuple[float, ...]:
    """The λ of `cluster.blend`."""
    return GRID if isinstance(blend, str) else (blend,)


def make_offers(
    leaf_models: Sequence[State],
    clusters: Sequence[State | None],
    weights: Sequence[float],
    blends: Sequence[float],
    personal_entries: Collection[str] = (),
) -> list[Offers]:
    """Offers to the S leaves.

    If all leaves form one cluster, every λ gives the same model, which is offered once, as λ = 1. A leaf
    alone in its cluster gets no offer for λ = 1, which would be its own model.

    Args:
        leaf_models: each leaf's model at the end of its leaf rounds.
        clusters: each leaf's cluster model, one object per cluster; None for a leaf alone in its cluster.
        weights: number of training windows of each leaf.
        blends: λ to offer, each in 0..1; one makes the role "offered", several "offered-0.25" and so on.
        personal_entries: each leaf's personal entries.

    Returns:
        Per leaf, its offers by role. Without `personal_entries`, leaves of one cluster share the models.
    """
    if len(leaf_models) == 1 or (clusters[0] is not None and all(c is clusters[0] for c in clusters)):
        blends = (1.0,)
    global_model = weighted_mean(leaf_models, weights) if min(blends) < 1 else None
    mixed = {blend: StateCache(partial(mix, global_model=global_model, blend=blend)) for blend in blends}
    offers: list[Offers] = []
    for model, cluster in zip(leaf_models, clusters, strict=True):
        leaf_offers: Offers = {}
        for blend in blends:
            if blend == 1 and cluster is None:
                continue
            base = model if cluster is None else cluster
            role = OFFERED if len(blends) == 1 else f"{OFFERED}-{blend:g}"
            leaf_offers[role] = Offer(blend, with_own_entries(mixed[blend](base), model, personal_entries))
        offers.append(leaf_offers)
    return offers


def mix(cluster: State, global_model: State | None, blend: float) -> State:
    """λ · cluster + (1 − λ) · global; for λ = 0 or 1 the given model itself."""
    if blend == 1 or global_model is None:
        return cluster
    return weighted_mean([cluster, global_model], [blend, 1 - blend]) if blend > 0 else global_model


def with_own_entries(offer: State, leaf_model: State, personal_entries: Collection[str]) -> State:
    """An offer with a leaf's own values of the entries `personal_entries`; no array is copied."""
    if not personal_entries:
        return offer
    return {name: leaf_model[name] if name in personal_entries else array for name, array in offer.items()}
