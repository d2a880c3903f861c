"""What a leaf's strategy needs of its number of clients, checked before anything trains."""

from collections.abc import Sequence

from fedge.config import Config, ConfigError


def training_clients(fraction: float, size: int) -> int:
    """Return how many of a leaf's `size` clients train in a leaf round."""
    return max(1, round(fraction * size))


def refuse_small_leaves(config: Config, sizes: Sequence[int]) -> None:
    """Raise ConfigError when a leaf has too few training clients for what its strategy promises.

    Krum names the model nearest to n − f − 2 others and needs n ≥ 2f + 3 clients of which f are malicious
    (Blanchard et al. 2017). A trimmed mean that cuts less than one client at each end is a plain mean.

    Args:
        config: its `leaf` and `hierarchy` sections are read.
        sizes: clients per leaf.
    """
    leaf = config.leaf
    smallest = min(range(len(sizes)), key=lambda index: sizes[index])
    training = training_clients(config.hierarchy.fraction_train, sizes[smallest])
    there = f"leaf {smallest} has {training} that train"
    if leaf.strategy == "krum" and training < 2 * leaf.num_malicious + 3:
        raise ConfigError(
            f"leaf.strategy krum needs 2 · leaf.num-malicious + 3 = {2 * leaf.num_malicious + 3} clients per "
            f"leaf, but {there}; lower leaf.num-malicious, lower hierarchy.num-servers or add clients"
        )
    if leaf.strategy == "fedtrimmedavg" and leaf.trim_fraction > 0 and int(leaf.trim_fraction * training) < 1:
        raise ConfigError(
            f"leaf.trim-fraction must cut at least one client at each end, but {leaf.trim_fraction:g} of "
            f"{training} is none ({there}); set at least {_cutting_one(training)}"
        )


def _cutting_one(training: int) -> str:
    """Return what to do so that one of `training` clients is cut at each end."""
    if training < 3:
        return "leaf.trim-fraction=0, or use leaves of 3 or more clients"
    return f"leaf.trim-fraction={(100 // training + 1) / 100:g}"
