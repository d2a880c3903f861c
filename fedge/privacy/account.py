"""Privacy spent by a run: ε at the configured δ, added up over leaf rounds by `dp-accounting`.

Every leaf round, fine-tuning rounds included, is at most one Gaussian release of each client's update, with a
constant noise multiplier z; T of them equal one of multiplier z/√T, whose ε is known exactly (Balle and Wang
2018, theorem 8). A client's cost does not depend on leaves other than its own.

If every leaf draws a fixed number of training clients and without replacement, an adversary who does not
learn the draw learns less (Wang et al. 2019, "Subsampled Rényi Differential Privacy and Analytical Moments
Accountant", theorem 27). In the theorem, neighbours replace one client by another, which doubles the
sensitivity: the multiplier is z/2. A client without a reply is such a replacement, so the theorem's ε also
holds for our neighbours, and the smaller of both counts. Sampling does not improve clients' own (local)
noise.
"""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fedge.config.sections.privacy import PrivacyConfig
from fedge.privacy.mechanism import gaussian_multiplier

EXTRA = "pip install 'fedge[privacy]'"
_LIBRARY = "dp-accounting"
_ORDERS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256)  # of Rényi divergence; any are right


class Account:
    """Adds up the privacy cost of a run's clients, the largest over all leaves."""

    def __init__(self, config: PrivacyConfig, drawn: Sequence[tuple[int, int]]) -> None:
        """Open the account.

        Args:
            config: configuration of the run.
            drawn: per leaf, (training clients in a leaf round, clients to draw from).
        """
        self._delta = config.delta
        self._multiplier = noise_multiplier(config)
        is_sampled = config.kind != "local" and all(sampled < total for sampled, total in drawn)
        self._sampling = sorted(set(drawn)) if is_sampled else []

    @property
    def library(self) -> str | None:
        """Name and version of the accountant; None without noise, or without the library."""
        if not self._multiplier or _dp_accounting() is None:
            return None
        try:
            return f"{_LIBRARY} {version(_LIBRARY)}"
        except PackageNotFoundError:
            return _LIBRARY

    def spent(self, releases: int) -> float | None:
        """ε after a number of leaf rounds; None without privacy, without noise or without the library.

        Args:
            releases: leaf rounds so far, fine-tuning rounds included.
        """
        library = _dp_accounting() if self._multiplier else None
        if library is None:
            return None
        if releases == 0:
            return 0.0
        plain = float(library.get_epsilon_gaussian(self._multiplier / releases**0.5, self._delta))
        return min(plain, max((self._epsilon_of(pair, releases) for pair in self._sampling), default=plain))

    def _epsilon_of(self, sampling: tuple[int, int], releases: int) -> float:
        """ε for drawn clients, as (drawn per leaf round, of how many)."""
        from dp_accounting import rdp

        per_release = _sampled_renyi(sampling, self._multiplier)
        total = [releases * divergence for divergence in per_release]
        epsilon, _ = rdp.compute_epsilon(_ORDERS, total, self._delta)
        return float(epsilon)


def noise_multiplier(config: PrivacyConfig) -> float:
    """z, noise over sensitivity, of one leaf round; 0 without privacy or without noise."""
    if config.kind == "off":
        return 0.0
    if config.kind == "local":
        return gaussian_multiplier(config.epsilon, config.delta)
    return config.noise_multiplier


@lru_cache(maxsize=64)
def _sampled_renyi(sampling: tuple[int, int], multiplier: float) -> tuple[float, ...]:
    """The Rényi divergences of one leaf round, by order, for replaced clients.

    The library takes a multiplier as noise over sensitivity, for any neighbours.
    """
    import dp_accounting
    from dp_accounting import rdp

    sampled, total = sampling
    accountant = rdp.RdpAccountant(_ORDERS, dp_accounting.NeighboringRelation.REPLACE_ONE)
    noise = dp_accounting.GaussianDpEvent(multiplier / 2)
    accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(total, sampled, noise))
    return tuple(map(float, accountant.rdp))


def _dp_accounting() -> Any:
    """The library, or None if it is not installed; loading takes seconds."""
    try:
        import dp_accounting
    except ImportError:
        return None
    return dp_accounting
