"""SCAFFOLD between servers: each leaf's correction for drift from its cluster, sent to its clients.

Here, a leaf is any child of the server, a leaf server or a region. The formulas are in
`fedge.training.scaffold`. A leaf's *drift* is its movement between two cloud steps, over all leaf rounds in
between. After the gates of a cloud step, leaf j gets the correction u_j = d − d_j, where d is the mean over
the leaves in its group both now and at the start of the drift:

- Leaves are in one group if they continue with the same cluster's offer of the same cloud step (before the
  first step, all leaves do) and, with several λ (`fedge.cloud.offers`), with the same λ. With λ = 0 all such
  leaves are in one group, because their clusters make no difference.
- With mixtures of K models, all leaves continuing with their mixture are in one group, and leaf j gets u_j =
  Σ_k Π_jk d_k − d_j with d_k = Σ_e Π_ek n_e d_e / Σ_e Π_ek n_e.
- In either case, a group's corrections sum to zero under the weights of its average, so its mean moves along
  its members' own gradients.
- A leaf that changes its cluster, keeps its own model (gate), is alone in its cluster, or did not train
  starts from zero, because it has no d_j from a common start.
- Leaves entering a cluster together keep their mutual corrections.
- Personal entries (`personal.layers`) are never corrected, because they are not averaged.

Between cloud steps the corrections stay constant. In a deeper tree every server between cloud and leaves does
the same with its children at the end of each of its rounds, and clients get the sum along their path.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence

import numpy as np

from fedge.cloud.offers import Offer
from fedge.leaf.drift import Drift
from fedge.leaf.server import Server
from fedge.states.averaging import State, batches, part_of
from fedge.training.scaffold import family_corrections, leaf_control, leaf_corrections

_NOBODY = -1  # the group of a lone leaf


def record_drift_ends(leaves: Sequence[Server]) -> None:
    """Record the leaves' models in a cloud step, before any of them takes an offer."""
    for leaf in leaves:
        if leaf.drift is not None:
            leaf.drift.end = leaf.model


def group_of(label: Hashable, model: State, offers: Mapping[str, Offer]) -> Hashable | None:
    """Key of the group in which a leaf continues; None for a leaf on its own.

    Args:
        label: its cluster, or one word for all leaves of a family of models.
        model: the model with which it continues.
        offers: the offers it received.
    """
    for offer in offers.values():
        if offer.model is model:
            return (label if offer.blend > 0 else None, offer.blend)
    return None


def start_drifts(
    leaves: Sequence[Server],
    groups: Sequence[Hashable | None],
    personal_entries: Collection[str] = (),
    memberships: np.ndarray | None = None,
) -> None:
    """Start new drifts from the leaves' current models, and set the leaves' corrections.

    Args:
        leaves: all leaves, in order, after `record_drift_ends`; needs SCAFFOLD on two levels.
        groups: `group_of` of each leaf.
        personal_entries: leaves' personal entries.
        memberships: Π (S, K) if leaves were offered mixtures of K models.
    """
    numbers: dict[Hashable, int] = {None: _NOBODY}
    numbered = [numbers.setdefault(group, len(numbers) - 1) for group in groups]
    corrections: dict[int, State] = {}
    for members in _common_groups(leaves, numbered):
        shares = None if memberships is None else memberships[members]
        member_corrections = _corrections([leaves[index] for index in members], personal_entries, shares)
        corrections.update(zip(members, member_corrections, strict=True))
    for position, (leaf, number) in enumerate(zip(leaves, numbered, strict=True)):
        leaf.drift = Drift(leaf.model, 0.0, number, corrections.get(position))


def _common_groups(leaves: Sequence[Server], groups: Sequence[int]) -> list[list[int]]:
    """The sets of two or more trained leaves with a common group both before and now."""
    sets: dict[Hashable, list[int]] = {}
    for index, (leaf, group) in enumerate(zip(leaves, groups, strict=True)):
        assert leaf.drift is not None
        if leaf.drift.length > 0 and _NOBODY not in (leaf.drift.group, group):
            sets.setdefault((leaf.drift.group, group), []).append(index)
    return [members for members in sets.values() if len(members) > 1]


def _corrections(
    leaves: Sequence[Server], personal_entries: Collection[str], memberships: np.ndarray | None
) -> list[State]:
    """u_j of leaves in one group, computed in parts, as models may be large."""
    assert leaves[0].control is not None
    template = leaves[0].control
    corrections = [{name: np.zeros_like(array) for name, array in template.items()} for _ in leaves]
    for batch in batches({name: array for name, array in template.items() if name not in personal_entries}):
        weights = [float(leaf.weight) for leaf in leaves]
        controls = [_control_part(leaf, batch) for leaf in leaves]
        parts = (
            leaf_corrections(controls, weights)
            if memberships is None
            else family_corrections(controls, weights, memberships)
        )
        for correction, part in zip(corrections, parts, strict=True):
            for name, span in batch.items():
                correction[name].reshape(-1)[span] = part[name]
    return list(corrections)


def _control_part(leaf: Server, batch: dict[str, slice]) -> State:
    """A part of d_j."""
    drift = leaf.drift
    assert drift is not None and drift.end is not None  # noqa: PT018
    correction = None if drift.correction is None else part_of(drift.correction, batch)
    return leaf_control(
        part_of(drift.start, batch), part_of(drift.end, batch), drift.length, correction, list(batch)
    )
