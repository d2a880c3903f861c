"""Common test set: its name for the clients' own windows, and the settings ruling it out."""

from fedge.config.registers.option import ConfigError
from fedge.config.run_options import RunOptions

OF_CLIENTS = "test"  # `evaluate.common`: all known clients' test windows


def refuse_impossible_common_test(config: RunOptions) -> None:
    """Raise ConfigError for a common test set without global rounds, or made of private clients' windows."""
    common = config.evaluate.common
    if common and config.asynchrony.is_on:
        raise ConfigError(
            f"evaluate.common needs rounds in which all leaves meet, but asynchrony.rule is "
            f"{config.asynchrony.rule}; leave it empty, or set asynchrony.rule=off"
        )
    if common == OF_CLIENTS and config.privacy.kind != "off":
        raise ConfigError(
            f"evaluate.common {common} lets the server read clients' test windows, but privacy.kind is "
            f"{config.privacy.kind}; name a window file of the server's own"
        )
