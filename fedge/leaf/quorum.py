"""How many replies a leaf needs before its model may change, and whether its clients can ever give them.

Krum and Multi-Krum tolerate f malicious clients of n >= 2f + 3 (Blanchard et al. 2017), Bulyan of n >= 4f + 3
(El Mhamdi et al. 2018). With fewer, nothing is promised, so the leaf keeps its model.
"""

from collections.abc import Sequence

from fedge.config.option import ConfigError
from fedge.config.sections import Config, LeafConfig


def needed_replies(config: Config) -> int:
    """Return the replies without which a leaf keeps its model in a leaf round."""
    malicious = config.leaf.num_malicious
    by_strategy = {"krum": 2 * malicious + 3, "multikrum": 2 * malicious + 3, "bulyan": 4 * malicious + 3}
    return max(config.guard.min_clients, by_strategy.get(config.leaf.strategy, 1))


def num_training(config: Config, num_clients: int) -> int:
    """Return how many of a leaf's clients train in a leaf round."""
    return max(1, round(config.hierarchy.fraction_train * num_clients))


def refuse_missing_quorum(config: Config, sizes: Sequence[int]) -> None:
    """Raise ConfigError when a leaf has fewer training clients than its strategy or the guard needs.

    Args:
        config: its `leaf`, `guard`, `privacy` and `hierarchy` sections are read.
        sizes: clients per leaf.
    """
    smallest = min(range(len(sizes)), key=lambda leaf: sizes[leaf])
    training = num_training(config, sizes[smallest])
    needed = needed_replies(config)
    there = f"leaf {smallest} trains {training} in a leaf round"
    if needed > training and needed == config.guard.min_clients:
        raise ConfigError(
            f"guard.min-clients must be at most the clients that a leaf trains, but is {needed} and {there}; "
            f"lower it, or give the leaf more clients"
        )
    if needed > training:
        raise ConfigError(
            f"leaf.strategy {config.leaf.strategy} needs {needed} clients for leaf.num-malicious="
            f"{config.leaf.num_malicious}, but {there}; lower leaf.num-malicious or hierarchy.num-servers"
        )
    _refuse_trimming_nothing(config.leaf, training, there)
    # the count of clipped updates has noise of n/20, and what is private together is at most twice as noisy
    noise = config.privacy.noise_multiplier
    if config.privacy.is_adaptive and noise >= training / 10:
        raise ConfigError(
            f"privacy.noise-multiplier must be below a tenth of the clients that a leaf trains for adaptive "
            f"clipping, but is {noise:g} and {there}; lower it, or use a fixed norm"
        )


def _refuse_trimming_nothing(leaf: LeafConfig, training: int, there: str) -> None:
    """Raise ConfigError for a trimmed mean that cuts less than one client at each end: a plain mean."""
    if leaf.strategy != "fedtrimmedavg" or leaf.trim_fraction == 0 or int(leaf.trim_fraction * training) >= 1:
        return
    if training < 3:
        hint = "leaf.trim-fraction=0, or use leaves of 3 or more clients"
    else:
        hint = f"at least leaf.trim-fraction={(100 // training + 1) / 100:g}"
    raise ConfigError(
        f"leaf.trim-fraction must cut at least one client at each end, but {leaf.trim_fraction:g} of "
        f"{training} is none ({there}); set {hint}"
    )
