"""Options that keep a run going: limits, large models through files, checkpoints."""

from dataclasses import dataclass

from fedge.config.registers.option import ConfigError, Section, option, shown


@dataclass(frozen=True)
class GuardConfig(Section):
    """Limits for clients that fail, hang or send unusable replies."""

    SECTION = "guard"
    start_timeout: float = option(
        120.0, "seconds until every client must have answered the first call", above=0.0
    )
    start_clients: int = option(
        0,
        "deployment: clients required after guard.start-timeout, also on resume; others may "
        "come later, or stay out after an invalid first answer; 0: all",
        minimum=0,
    )
    client_timeout: float = option(
        3600.0,
        "seconds for a client's call; then the client is given up and its worker replaced",
        above=0.0,
    )
    return_timeout: float = option(
        30.0,
        "deployment: seconds an exchange waits for a lost SuperNode",
        minimum=0.0,
    )
    stall_timeout: float = option(
        0.0,
        "seconds without a reply or a finished step after which the run ends; 0: twice "
        "guard.client-timeout, at least 600",
        minimum=0.0,
    )
    retries: int = option(
        1,
        "further attempts of a failed client in a leaf round, with the same random stream",
        minimum=0,
    )
    min_clients: int = option(
        1, "replies that a leaf round needs; with fewer a leaf keeps its model", minimum=1
    )
    max_norm_factor: float = option(
        0.0, "largest update, in medians of the leaf's recent ones; 0: off, else at least 1", minimum=0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.max_norm_factor < 1:
            raise ConfigError(
                f"guard.max-norm-factor must be 0 or at least 1, because below 1 it refuses the median "
                f"client, but is {self.max_norm_factor}; try guard.max-norm-factor=5"
            )


_LARGE_BYTES = 50e6


@dataclass(frozen=True)
class TransferConfig(Section):
    """Transfer of models between processes, and their storage within one."""

    SECTION = "transfer"
    share_above_mb: float = option(
        8.0,
        "10^6 bytes above which models go through files mapped by all processes, not in messages",
        minimum=0.0,
    )
    spill_above_mb: float | str = option(
        "auto",
        "10^6 bytes above which idle models and control variates lie in files, in one "
        'process, and at servers and nodes on several machines; "auto": 50; without control variates '
        "no limit, if free memory holds a round's models 2.5 times",
        minimum=0.0,
        words=("auto",),
        kind=float,
    )

    @property
    def spills_by_memory(self) -> bool:
        """Whether free memory decides if models are kept in memory or in files."""
        return self.spill_above_mb == "auto"

    @property
    def spill_above_bytes(self) -> float:
        """Size in bytes above which a model is kept in files, unless free memory decides."""
        return _LARGE_BYTES if isinstance(self.spill_above_mb, str) else self.spill_above_mb * 1e6


BEST = "best"  # models, by the validation score
_MOST_DIGITS = 10


@dataclass(frozen=True)
class CheckpointConfig(Section):
    """Checkpoints for resuming a run after any stop."""

    SECTION = "checkpoint"
    every: int = option(1, "global rounds between checkpoints; 0: none", minimum=0)
    keep: int = option(2, "newest checkpoints to keep", minimum=1)
    models: str = option(
        "",
        'models kept beside the final ones, for predict and export: of rounds, "10,20", and '
        '"best", by validation score',
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = next((name for name in self._names if name != BEST and not _is_round(name)), None)
        if wrong is not None:
            raise ConfigError(
                f'checkpoint.models must be global rounds from 1 on, or "{BEST}", with commas between, but '
                f'has {shown(wrong)}; set for example checkpoint.models="10,{BEST}"'
            )

    @property
    def _names(self) -> list[str]:
        """Comma-separated entries of `models`."""
        return [name.strip() for name in self.models.split(",")] if self.models.strip() else []

    @property
    def rounds(self) -> frozenset[int]:
        """Global rounds whose models are kept."""
        return frozenset(int(name) for name in self._names if name != BEST)

    @property
    def keeps_best(self) -> bool:
        """Whether the best models so far are kept."""
        return BEST in self._names


def _is_round(name: str) -> bool:
    """Whether a text is the number of a global round."""
    return name.isascii() and name.isdecimal() and len(name) < _MOST_DIGITS and int(name) > 0
