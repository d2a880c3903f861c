"""What the privacy of a configuration promises, and what leaves a client without noise all the same.

Every quantity that leaves a client is marked here once: noised under some kinds of privacy, public, or plain.
What decides something says which quantity it decides by; a grouping method, a user's too, says so by
its needs (`fedge.clustering.registry`). What a run does not cover follows from both; no part is named.
docs/privacy.md says it at length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from fedge.config import parts
from fedge.config.config import Config
from fedge.privacy.account import EXTRA, noise_multiplier

_NOT_INSTALLED = f"dp-accounting is not installed ({EXTRA})"
_EVERY_KIND = frozenset({"server-fixed", "server-adaptive", "client-fixed", "client-adaptive", "local"})


class Mark(Enum):
    """How a quantity leaves a client under a kind of privacy."""

    NOISED = "noised"
    PUBLIC = "public"
    PLAIN = "plain"


@dataclass(frozen=True)
class Quantity:
    """Something that leaves clients.

    Attributes:
        words: what it is.
        noised: kinds of privacy under which noise covers it before anybody but its leaf sees it.
        is_public: known to everybody before a client says it.
        entries: of replies, by the end of their name (`fedge.exchange`).
    """

    words: str
    noised: frozenset[str] = frozenset()
    is_public: bool = False
    entries: tuple[str, ...] = ()

    def mark(self, kind: str) -> Mark:
        """How it leaves a client under a kind of privacy."""
        if self.is_public:
            return Mark.PUBLIC
        return Mark.NOISED if kind in self.noised else Mark.PLAIN


MODELS = Quantity("trained models", _EVERY_KIND, entries=("arrays",))
CLIPPED = Quantity("whether updates were clipped", frozenset({"client-adaptive"}), entries=("norm_bit",))
SCALES = Quantity("mean and std of raw windows", entries=("told",))
WINDOWS = Quantity("numbers of windows", entries=("num-examples", "steps"))
LOSSES = Quantity("losses", entries=("train-loss", "loss"))
ACCURACIES = Quantity("accuracies", entries=("confusion", "differences"))
DESCRIPTIONS = Quantity("class-wise means of features", entries=("moments",))
WHO_FAILED = Quantity("who failed")
MACHINES = Quantity(
    "what machines hold and took", entries=("train-seconds", "work", "held", "device", "shares", "pid")
)
PLACES = Quantity(
    "which client it is, and of which round it speaks", is_public=True,
    entries=("partition_id", "num_partitions", "version"),
)  # fmt: skip
QUANTITIES = (
    MODELS, CLIPPED, SCALES, LOSSES, ACCURACIES, WINDOWS, WHO_FAILED, DESCRIPTIONS, MACHINES, PLACES,
)  # fmt: skip
_IN_TABLES = (LOSSES, ACCURACIES, WINDOWS, WHO_FAILED)


@dataclass(frozen=True)
class Decision:
    """Something that models depend on, and by what it is decided.

    Attributes:
        by: the quantity of clients.
        what: is decided by it.
        option: that decides it.
        applies: whether a configuration has it.
    """

    by: Quantity
    what: str
    option: str
    applies: Callable[[Config], bool]


def _has_cloud(config: Config) -> bool:
    return config.hierarchy.num_servers > 1


DECISIONS = (
    Decision(SCALES, "", "data.normalize", lambda config: config.data.normalize),
    Decision(
        ACCURACIES, "by which gates decide", "gate.enabled",
        lambda config: _has_cloud(config) and config.gate.enabled,
    ),
    Decision(
        LOSSES, "by which offers are mixed", "cluster.blend",
        lambda config: _has_cloud(config) and isinstance(config.cluster.blend, str),
    ),
    Decision(
        ACCURACIES, "by which fine-tuned models are served", "personal.leaf-rounds",
        lambda config: config.personal.leaf_rounds > 0,
    ),
    Decision(
        WINDOWS, "by which the cloud weighs leaves", "hierarchy.num-servers",
        lambda config: _has_cloud(config) and config.cluster.enabled,
    ),
    Decision(
        WINDOWS, "by which leaves weigh clients", "privacy.kind",
        lambda config: config.privacy.kind == "local",
    ),
    Decision(
        LOSSES, "and all else in replies, which leaves combine", "leaf.strategy",
        lambda config: config.leaf.strategy != parts.RULES.names[0],
    ),
    Decision(
        WHO_FAILED, "by which leaves keep their models", "guard.min-clients",
        lambda config: config.guard.min_clients > 1,
    ),
    Decision(
        ACCURACIES, "by which the run may end", "callbacks", lambda config: bool(config.callbacks.strip())
    ),
)  # fmt: skip
"""All but the grouping of leaves, whose method says itself what clients send for it."""


def quantity_of(entry: str) -> Quantity:
    """The quantity that an entry of a reply is: "train-loss", "own/val/sums/confusion", …

    Raises:
        KeyError: nobody has marked it.
    """
    last = entry.rsplit("/", 1)[-1]
    for quantity in QUANTITIES:
        if last in quantity.entries:
            return quantity
    raise KeyError(f"{entry} leaves clients without a mark: noised, public or plain")


def promise(kind: str) -> str:
    """Return who is protected from whom under a kind of privacy, in a few words."""
    if kind == "local":
        return "local: a client's windows may be any others, and its leaf could not tell"
    return "central: a client's updates may be there or not, and the leaves' models would not tell"


def not_covered(config: Config, sent: Sequence[str] = ()) -> list[str]:
    """What leaves clients without noise: first what models depend on, last what is only recorded.

    Args:
        config: of the run.
        sent: what clients send for the grouping of leaves, beside their models.
    """
    kind, option = config.privacy.kind, _grouping_option(config)
    found = [
        f"{' '.join(filter(None, (decision.by.words, decision.what)))} ({decision.option})"
        for decision in DECISIONS
        if decision.by.mark(kind) is Mark.PLAIN and decision.applies(config)
    ]
    if _has_cloud(config):
        found += [f"{what}, by which leaves are grouped ({option})" for what in sent]
    recorded = [quantity.words for quantity in _IN_TABLES if quantity.mark(kind) is Mark.PLAIN]
    return [*found, f"all that the tables hold of clients: {', '.join(recorded)}"]


def _grouping_option(config: Config) -> str:
    """The option by which something else would be sent."""
    by_signal = parts.GROUPINGS.has(config.cluster.method, parts.BY_SIGNAL)
    return "cluster.signal" if by_signal else "cluster.method"


def at_start(config: Config, library: str | None, sent: Sequence[str] = ()) -> str:
    """Return what must be known of a private run before its first round, in one line.

    Args:
        config: of the run.
        library: that adds up what is spent; None where none does.
        sent: as of `not_covered`.
    """
    words = _covered(config, sent)
    if library is None and noise_multiplier(config.privacy):
        return f"{words}; epsilon will not be added up, because {_NOT_INSTALLED}"
    return words


def _covered(config: Config, sent: Sequence[str]) -> str:
    if not noise_multiplier(config.privacy):
        return "privacy: privacy.noise-multiplier is 0: updates are clipped, nothing is promised"
    return f"privacy is {promise(config.privacy.kind)}; not covered: {'; '.join(not_covered(config, sent))}"


def at_end(config: Config, epsilon: float | None, releases: int, sent: Sequence[str] = ()) -> str:
    """Return what a private run has spent, in one line.

    Args:
        config: of the run.
        epsilon: that was spent; None where it was not added up.
        releases: leaf rounds, fine-tuning rounds included.
        sent: as of `not_covered`.
    """
    if not noise_multiplier(config.privacy):
        return _covered(config, sent)
    counted = f"{releases} leaf round{'s' if releases != 1 else ''}"
    if epsilon is None:
        spent = f"epsilon of {counted} was not added up, because {_NOT_INSTALLED}"
    else:
        spent = f"epsilon {epsilon:.4g} at delta {config.privacy.delta:g} was spent in {counted}"
    return f"privacy: {spent}; {_covered(config, sent)}"
