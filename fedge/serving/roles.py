"""Roles of evaluated models: the one served to a leaf's known clients, and the one for its unseen clients.

Known clients train and vote at the gate. Unseen clients, whose users no leaf knows, do neither; they evaluate
the model their leaf would give them. By default this is the model of the leaf's cluster: an average over more
users transfers to new users better than a model fitted to a few users, while those few are better served by
the fitted one.
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


def extra_model_count(config: Config) -> int:
    """Number of models kept by a leaf besides its own and its offers."""
    own_line = config.gate.is_tentative
    return own_line + (config.personal.leaf_rounds > 0) + (config.partition.unseen_clients > 0)


def unseen_role(config: PersonalConfig, leaf: Server) -> str | None:
    """The role of a leaf's model for unseen clients; None if the same as for known clients.

    A leaf alone in its cluster, or before the first cloud step, is its own cluster.
    """
    if config.unseen_clients == "same":
        return None
    return OWN if leaf.models.cluster is None else CLUSTER


def unseen_clients_evaluate(
    config: PersonalConfig, leaf: Server, models: Mapping[str, State]
) -> dict[str, State]:
    """The models evaluated by a leaf's unseen clients, by role.

    Args:
        config: section `personal`.
        leaf: the clients' leaf.
        models: models evaluated by its known clients, by role.
    """
    role = unseen_role(config, leaf)
    if role is None:
        return dict(models)
    return {role: models[OWN] if leaf.models.cluster is None else leaf.models.cluster}


def served_role(gate: GateResult, personal: PersonalResult | None, unseen_client: bool) -> str:
    """The role, in the evaluate exchange, of a leaf's served model.

    Every reported accuracy is of this model, unless the name says "shared" or "tuned". A role served to some
    clients only must have been sent to them (`fedge.rounds.gates.Gates`).

    Args:
        gate: the leaf's decision in this round.
        personal: result of fine-tuning; None in a round without it.
        unseen_client: whether the client is an unseen one.
    """
    if unseen_client and gate.unseen_role is not None:
        return gate.unseen_role
    return PERSONAL if personal is not None and personal.serves else gate.role
