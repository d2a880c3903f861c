"""Served models: the one that a leaf gives clients that it knows, and the one for unseen clients.

Known clients train and vote at the gate. Unseen clients hold users of whom no leaf has seen a window; they do
neither, and are evaluated with the model that their leaf would give them. By default that is the model of the
leaf's cluster: an average over more users carries over to new ones better than a model that a few users have
been fitted to, while those few are better off with the fitted one.
"""

from collections.abc import Mapping

from fedge.config.config import Config
from fedge.config.sections.serving import PersonalConfig
from fedge.exchange.evaluate import CLUSTER, OWN
from fedge.exchange.round_context import PERSONAL
from fedge.leaf.server import Server
from fedge.serving.gate import GateResult
from fedge.serving.personal import PersonalResult
from fedge.states.averaging import State


def models_beside(config: Config) -> int:
    """Number of models that a leaf may keep beside its own and its offers."""
    own_line = config.gate.is_tentative
    return own_line + (config.personal.leaf_rounds > 0) + (config.partition.unseen_clients > 0)


def unseen_role(config: PersonalConfig, leaf: Server) -> str | None:
    """The role of the model that a leaf serves unseen clients; None where it is that of known clients.

    A leaf that is alone in its cluster, or before the first cloud step, is its own cluster.
    """
    if config.unseen_clients == "same":
        return None
    return OWN if leaf.models.cluster is None else CLUSTER


def unseen_clients_evaluate(
    config: PersonalConfig, leaf: Server, models: Mapping[str, State]
) -> dict[str, State]:
    """The models that a leaf's unseen clients are to evaluate, by role.

    Args:
        config: on unseen clients.
        leaf: theirs.
        models: that the clients it knows evaluate.
    """
    role = unseen_role(config, leaf)
    if role is None:
        return dict(models)
    return {role: models[OWN] if leaf.models.cluster is None else leaf.models.cluster}


def served_role(gate: GateResult, personal: PersonalResult | None, unseen_client: bool) -> str:
    """The role, in the evaluate exchange, of the model that a leaf serves.

    Every accuracy that a run reports is of this model, unless the name says "shared" or "tuned". A
    role that is served only to some must have been sent to them (`fedge.rounds.gates.Gates`).

    Args:
        gate: the leaf's decision in this round.
        personal: result of fine-tuning; None in a round without it.
        unseen_client: whether the client is one.
    """
    if unseen_client and gate.unseen_role is not None:
        return gate.unseen_role
    return PERSONAL if personal is not None and personal.serves else gate.role
