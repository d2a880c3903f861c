"""Options of the data: its source, its split, and its distribution over clients and leaves."""

from dataclasses import dataclass

from fedge.config.registers import parts
from fedge.config.registers.choices import BY_SEED, SORTED
from fedge.config.registers.option import KEYWORDS, ConfigError, Section, option, shown
from fedge.config.registers.register import refuse_undeclared

_MOST_DIGITS_OF_SEED = 19

MOST_SYNTHETIC_USERS = 10_000  # a quarter of an hour to make, and 7 GB


@dataclass(frozen=True)
class DataConfig(Section):
    """Windows of a run, and their split into training, validation and test."""

    SECTION = "data"
    path: str = option(
        "auto",
        'window file (.npz); NAME for data/NAME.npz; "synthetic"; "digits" (images), '
        '"diabetes" (regression), "notes" (several classes), "sonnets" (characters); "auto": '
        "data/hhar-windows.npz if present, else synthetic",
        also=("dataset",),
    )
    path_args: str = option(
        "",
        KEYWORDS,
        table=True,
    )
    split: str = option(
        "auto",
        "by sessions, by time blocks per class, as given by the data (part); auto: as given, "
        "else sessions if known",
        choices=("auto", "session", "blocks", "given"),
    )
    val_fraction: float = option(0.2, "share of windows for validation (gates)", above=0.0, maximum=0.8)
    test_fraction: float = option(0.2, "share of windows for test (reported scores)", above=0.0, maximum=0.8)
    guard_windows: int = option(
        1, "blocks: windows dropped before each cut; 1 suits overlaps of up to half a window", minimum=0
    )
    normalize: bool = option(True, "scale channels by mean and std of the training windows")
    synthetic_users: int = option(
        0,
        "users of the synthetic set; 0: nine, or one per client if these are more",
        minimum=0,
        maximum=MOST_SYNTHETIC_USERS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.val_fraction + self.test_fraction > 0.9:
            raise ConfigError(
                f"data.val-fraction + data.test-fraction must leave at least 0.1 for training, "
                f"but are {self.val_fraction} + {self.test_fraction}; lower one of them"
            )


@dataclass(frozen=True)
class PartitionConfig(Section):
    """How windows are dealt to clients."""

    SECTION = "partition"
    kind: str = option(
        "user",
        "what is dealt: whole users, whole devices, or windows",
        register=parts.PARTITIONS,
        also=("partitioner",),
    )
    kind_args: str = option("", KEYWORDS, table=True)
    deal: str = option(
        "seed",
        'deal of users or devices: "seed" for one per seed, "sorted" as text ("10" before "2"), '
        'or a seed of its own, as "7"',
    )
    unseen_clients: int = option(
        0,
        "clients at the end of each leaf that hold whole users out of training; evaluated every round",
        minimum=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_undeclared(parts.PARTITIONS, self.kind, self.arguments("kind"))
        if self.deal not in (BY_SEED, SORTED) and self.deal_seed is None:
            raise ConfigError(
                f'partition.deal must be "seed", "sorted" or a whole number of at least 0 in quotes, but is '
                f'{shown(self.deal)}; set for example partition.deal="7"'
            )

    @property
    def cuts_owners(self) -> bool:
        """Whether users (or devices) are split when there are more clients than users."""
        return self.arguments("kind").get("split_users") is True

    @property
    def deal_seed(self) -> int | None:
        """The seed of the deal if `deal` is a number, else None."""
        is_number = self.deal.isascii() and self.deal.isdecimal() and len(self.deal) < _MOST_DIGITS_OF_SEED
        return int(self.deal) if is_number else None
