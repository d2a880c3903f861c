"""Options incompatible with client sampling."""

from fedge.config.registers import parts, traits
from fedge.config.registers.option import ConfigError, shown
from fedge.config.run_options import RunOptions


def refuse_participation(config: RunOptions) -> None:
    """Raise ConfigError for contradictory options on which clients train."""
    hierarchy, kind = config.hierarchy, config.privacy.kind
    participation = hierarchy.participation
    is_set = participation not in parts.PARTICIPATIONS.names
    if is_set and hierarchy.fraction_train != 1.0:
        raise ConfigError(
            f"hierarchy.fraction-train must be 1.0 beside hierarchy.participation, which says how many "
            f"train, but is {hierarchy.fraction_train:g}; leave one of them out"
        )
    is_constant = hierarchy.participants is not None and len(hierarchy.participants.steps) == 1
    if is_set and not is_constant and kind not in ("off", "local"):
        raise ConfigError(
            f"privacy.kind {kind} needs the same number of clients in every round, for which its noise is "
            f"measured, but hierarchy.participation is {shown(participation)}; leave the rounds out"
        )
    selection = hierarchy.selection
    if kind != "off" and not parts.CLIENT_SELECTIONS.has(selection, traits.BLIND_TO_DATA):
        raise ConfigError(
            f"privacy.kind {kind} needs hierarchy.selection to be "
            f"{' or '.join(parts.CLIENT_SELECTIONS.names_with(traits.BLIND_TO_DATA))}, because who trains "
            f"would tell of clients' data without noise, but it is {selection}; set one of them otherwise"
        )
