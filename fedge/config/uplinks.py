"""Options incompatible with compression."""

from collections.abc import Callable

from fedge.config.registers import parts, traits
from fedge.config.registers.option import ConfigError, shown
from fedge.config.run_options import RunOptions

_EXACT_MODELS: tuple[tuple[str, str, Callable[[RunOptions], bool]], ...] = (
    ("gate.enabled=false", "a server that keeps its own model would continue from one unknown above",
     lambda config: config.gate.enabled),
    ("cluster.enabled=false", "evidence on groups, and trials of them, are sent beside the model",
     lambda config: config.cluster.enabled),
    ("cluster.blend=1.0", "the mean of all is mixed in from exact models",
     lambda config: config.cluster.blend != 1.0),
    ('personal.layers="none"', "layers that a leaf keeps are not known above",
     lambda config: config.personal.layers != "none"),
    ("cloud.rule-tiers of the root alone", "a rule between regions continues from exact models",
     lambda config: len(config.meeting_tiers) > 1),
    ("scaffold.levels=1", "corrections between servers are sums of exact drifts",
     lambda config: config.scaffold.enabled and config.scaffold.levels > 1),
)  # fmt: skip


def refuse_inexact_uplinks(config: RunOptions) -> None:
    """Raise ConfigError for an option that needs exact models, which compression does not deliver."""
    uplink = config.uplink
    if not uplink.is_on:
        return
    if config.asynchrony.is_on:
        raise ConfigError(
            f"uplink.clients and uplink.servers must be none with asynchrony.rule {config.asynchrony.rule}, "
            f"whose clock counts uncompressed models; set them to none, or time rounds by devices.time-rounds"
        )
    if uplink.clients != parts.UNCOMPRESSED:
        _refuse_client_uplink(config, uplink.clients)
    for remedy, why, is_set in _EXACT_MODELS if uplink.servers != parts.UNCOMPRESSED else ():
        if is_set(config):
            raise ConfigError(
                f"uplink.servers {shown(uplink.servers)} needs {remedy}, because {why}; set that, or "
                f'uplink.servers="none"'
            )


def _refuse_client_uplink(config: RunOptions, name: str) -> None:
    """Raise ConfigError when clients' compression would break control variates, or precede the noise."""
    register = parts.CLIENT_UPLINKS
    if config.scaffold.enabled and not register.is_own(name) and not register.has(name, traits.FEEDBACK):
        raise without_feedback(name)
    kind = config.privacy.kind
    if kind not in ("off", "local"):
        raise ConfigError(
            f"uplink.clients {shown(name)} needs privacy.kind off or local, because compression comes after "
            f"the noise, but with {kind} the leaf adds it to what clients have sent; set "
            f'uplink.clients="none", or privacy.kind="local"'
        )


def without_feedback(name: str) -> ConfigError:
    """Error for a code without error feedback beside SCAFFOLD."""
    alternatives = " or ".join(parts.CLIENT_UPLINKS.names_with(traits.FEEDBACK))
    return ConfigError(
        f"uplink.clients {shown(name)} needs scaffold.enabled=false, because control variates are sums of "
        f"what clients send, and without feedback these are not the sums of their updates; set that, or use "
        f"{alternatives}"
    )
