"""What the privacy of a configuration promises, and what leaves a client without noise all the same.

docs/privacy.md says it at length.
"""

from fedge.config.config import Config
from fedge.privacy.account import EXTRA, noise_multiplier

_LOSS_SIGNALS = ("cross-loss", "cross-loss-rows", "affinity")
_NOT_INSTALLED = f"dp-accounting is not installed ({EXTRA})"
_RECORDED = "all that the tables hold of clients: losses, accuracies, numbers of windows, who failed"


def promise(kind: str) -> str:
    """Return who is protected from whom under a kind of privacy, in a few words."""
    if kind == "local":
        return "local: a client's windows may be any others, and its leaf could not tell"
    return "central: a client's updates may be there or not, and the leaves' models would not tell"


def not_covered(config: Config) -> list[str]:
    """Return what leaves clients without noise: first what models depend on, last what is only recorded."""
    cluster, found = config.cluster, []
    has_cloud = config.hierarchy.num_servers > 1
    if config.data.normalize:
        found.append("mean and std of raw windows (data.normalize)")
    if has_cloud and config.gate.enabled:
        found.append("accuracies by which gates decide (gate.enabled)")
    if has_cloud and cluster.enabled and cluster.method == "ifca":
        found.append("losses by which leaves choose a cluster (cluster.method)")
    elif has_cloud and cluster.enabled and cluster.signal in _LOSS_SIGNALS:
        found.append("losses by which leaves are compared (cluster.signal)")
    if has_cloud and isinstance(cluster.blend, str):
        found.append("accuracies by which offers are mixed (cluster.blend)")
    if config.personal.leaf_rounds:
        found.append("accuracies by which fine-tuned models are served (personal.leaf-rounds)")
    return [*found, _RECORDED]


def at_start(config: Config, library: str | None) -> str:
    """Return what must be known of a private run before its first round, in one line.

    Args:
        config: of the run.
        library: that adds up what is spent; None where none does.
    """
    words = _covered(config)
    if library is None and noise_multiplier(config.privacy):
        return f"{words}; epsilon will not be added up, because {_NOT_INSTALLED}"
    return words


def _covered(config: Config) -> str:
    if not noise_multiplier(config.privacy):
        return "privacy: privacy.noise-multiplier is 0: updates are clipped, nothing is promised"
    return f"privacy is {promise(config.privacy.kind)}; not covered: {'; '.join(not_covered(config))}"


def at_end(config: Config, epsilon: float | None, releases: int) -> str:
    """Return what a private run has spent, in one line.

    Args:
        config: of the run.
        epsilon: that was spent; None where it was not added up.
        releases: leaf rounds, fine-tuning rounds included.
    """
    if not noise_multiplier(config.privacy):
        return _covered(config)
    counted = f"{releases} leaf round{'s' if releases != 1 else ''}"
    if epsilon is None:
        spent = f"epsilon of {counted} was not added up, because {_NOT_INSTALLED}"
    else:
        spent = f"epsilon {epsilon:.4g} at delta {config.privacy.delta:g} was spent in {counted}"
    return f"privacy: {spent}; {_covered(config)}"
