"""How many replies a leaf needs before its model may change, and whether its clients can ever give them.

Krum and Multi-Krum tolerate f malicious clients of n >= 2f + 3 (Blanchard et al. 2017), Bulyan of n >= 4f + 3
(El Mhamdi et al. 2018). Multi-Krum that averages m clients needs n >= m + f + 2, else it averages those that
it is to leave out; a trimmed mean needs one client to cut at each end; Bulyan with f = 0 is a mean and is
refused. With fewer replies nothing is promised, so the leaf keeps its model.
"""

import math
from collections.abc import Sequence

from fedge.config.config import Config
from fedge.config.option import ConfigError
from fedge.config.sections.hierarchy import CloudConfig, LeafConfig


def needed_replies(config: Config) -> int:
    """The replies without which a leaf keeps its model in a leaf round."""
    leaf = config.leaf
    needed = _needed_by_strategy(leaf.strategy, leaf.num_malicious, leaf.num_selected, leaf.trim_fraction)
    return max(config.guard.min_clients, needed)


def needed_leaves(cloud: CloudConfig) -> int:
    """Models without which the cloud's rule does not keep its promise to a group; at least 2.

    Args:
        cloud: its section of the configuration; Flower's defaults hold where its table is silent.
    """
    given = {key.replace("-", "_"): value for key, value in cloud.arguments("rule").items()}
    malicious, selected = given.get("num_malicious_nodes", 0), given.get("num_nodes_to_select", 1)
    return max(2, _needed_by_strategy(cloud.rule, malicious, selected, given.get("beta", 0.2)))


def _needed_by_strategy(strategy: str, malicious: int, selected: int, trimmed: float) -> int:
    """The replies that a strategy needs to keep its promise."""
    if strategy == "krum":
        return 2 * malicious + 3
    if strategy == "multikrum":
        return max(2 * malicious + 3, selected + malicious + 2 if selected else 0)
    if strategy == "bulyan":
        return 4 * malicious + 3
    if strategy == "fedtrimmedavg" and trimmed > 0:
        enough = math.ceil(1 / trimmed)
        return enough if int(trimmed * enough) >= 1 else enough + 1  # rounding
    return 1


def num_training(config: Config, num_clients: int) -> int:
    """How many of a leaf's clients train in a leaf round."""
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
    _refuse_bulyan_of_nobody(config.leaf)
    there = f"leaf {smallest} trains {training} in a leaf round"
    if needed > training and needed == config.guard.min_clients:
        raise ConfigError(
            f"guard.min-clients must be at most the clients that a leaf trains, but is {needed} and {there}; "
            f"lower it, or give the leaf more clients"
        )
    _refuse_trimming_nothing(config.leaf, training, there)
    room = training - config.leaf.num_malicious - 2
    if config.leaf.strategy == "multikrum" and config.leaf.num_selected > max(room, 0):
        raise ConfigError(
            f"leaf.num-selected must be at most the clients that a leaf trains less the malicious ones and "
            f"two, but is {config.leaf.num_selected} and {there}; lower it, or set 0 for as many as may be"
        )
    if needed > training:
        raise ConfigError(
            f"leaf.strategy {config.leaf.strategy} needs {needed} clients for leaf.num-malicious="
            f"{config.leaf.num_malicious}, but {there}; lower leaf.num-malicious or hierarchy.num-servers"
        )
    # the count of clipped updates has noise of n/20, and both together are at most twice as noisy
    noise = config.privacy.noise_multiplier
    if config.privacy.is_adaptive and noise >= training / 10:
        raise ConfigError(
            f"privacy.noise-multiplier must be below a tenth of the clients that a leaf trains for adaptive "
            f"clipping, but is {noise:g} and {there}; lower it, or use a fixed norm"
        )


def _refuse_bulyan_of_nobody(leaf: LeafConfig) -> None:
    """Raise ConfigError for Bulyan that is to leave out nobody: a plain mean."""
    if leaf.strategy == "bulyan" and leaf.num_malicious == 0:
        raise ConfigError(
            "leaf.num-malicious must be at least 1 for leaf.strategy bulyan, which is a plain mean with 0; "
            "set leaf.num-malicious=1, or leaf.strategy=fedavg"
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
