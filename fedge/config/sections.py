"""Every option of a run: name, default, unit, range. The only reader of run-config keys.

Flower hands an app one flat mapping, ``{"train.lr": 0.05, ...}``. `from_run_config` turns it into frozen
dataclasses, one per concern, and refuses what cannot be meant: an unknown key (the nearest known one is
named), a wrong type, a value out of range, a contradiction. Field names are the keys with ``_`` for ``-``.
How an option is checked stands in `fedge.config.option`, the parts to choose from in `fedge.config.parts`,
other words in `fedge.config.choices`, what sections must not say together in `fedge.config.contradictions`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from types import MappingProxyType
from typing import Any, TypeVar, cast

from fedge.config import parts
from fedge.config.choices import (
    BY_SEED,
    BY_TEST,
    BY_THRESHOLD,
    CLUSTER_LINKAGES,
    CLUSTER_TESTS,
    PERSONAL_LAYERS,
    PRIVACY_KINDS,
    SORTED,
)
from fedge.config.contradictions import refuse_contradictions
from fedge.config.option import ConfigError, Scalar, Section, arguments_of, key_of, nearest, option, shown


@dataclass(frozen=True)
class HierarchyConfig(Section):
    """Who stands under whom, and how often they talk."""

    SECTION = "hierarchy"
    num_servers: int = option(3, "leaf servers", minimum=1)
    clients_per_server: str = option(
        "auto", '"auto" splits the clients evenly over the leaves; or one number per leaf, as "4,3,2"'
    )
    leaf_rounds: int = option(1, "leaf rounds (client exchanges) per global round", minimum=1)
    fraction_train: float = option(
        1.0, "share of each leaf's clients that train in a leaf round", above=0.0, maximum=1.0
    )


@dataclass(frozen=True)
class LeafConfig(Section):
    """How a leaf server combines its clients' models: one of Flower's own strategies."""

    SECTION = "leaf"
    strategy: str = option("fedavg", "Flower strategy of every leaf", register=parts.RULES)
    strategy_args: str = option("", "keyword arguments of a strategy of one's own, as a table", table=True)
    trim_fraction: float = option(0.34, "fedtrimmedavg: share cut off at each end", minimum=0.0, maximum=0.49)
    num_malicious: int = option(0, "krum, multikrum, bulyan: clients per leaf assumed malicious", minimum=0)
    num_selected: int = option(
        0, "multikrum: clients that are averaged; 0 = all but the malicious and two", minimum=0
    )
    server_lr: float = option(
        0.01, "fedadagrad, fedadam, fedyogi: server learning rate (eta)", above=0.0, maximum=1e6
    )
    server_momentum: float = option(0.9, "fedavgm: server momentum", minimum=0.0, maximum=0.999)
    fairness: float = option(0.1, "qfedavg: q; 0 = all clients count alike", minimum=0.0)


_MOST_DIGITS_OF_SEED = 19
MOST_SYNTHETIC_USERS = 10_000  # a quarter of an hour to make, and 7 GB


@dataclass(frozen=True)
class DataConfig(Section):
    """Which windows, and how they are split into training, validation and test."""

    SECTION = "data"
    path: str = option(
        "auto",
        'window file (.npz); NAME for data/NAME.npz; "synthetic"; "digits", images; or "auto": '
        "data/hhar-windows.npz if it is there, else synthetic",
    )
    path_args: str = option(
        "", "keyword arguments of digits or a data set of one's own, as a table", table=True
    )
    split: str = option(
        "auto",
        "by whole sessions, by time blocks per class, or auto: sessions where they are known",
        choices=("auto", "session", "blocks"),
    )
    val_fraction: float = option(
        0.2, "share of the windows for validation (the gate)", above=0.0, maximum=0.8
    )
    test_fraction: float = option(
        0.2, "share of the windows for test (the reported accuracy)", above=0.0, maximum=0.8
    )
    guard_windows: int = option(
        1, "blocks: windows dropped before each cut; 1 suits an overlap of up to half a window", minimum=0
    )
    normalize: bool = option(True, "scale each channel by mean and std of the training windows")
    synthetic_users: int = option(
        0,
        "users in the synthetic set; 0: nine as in HHAR, or one per client if there are more clients",
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
        "user", "what is dealt: whole users, whole devices, or windows", register=parts.PARTITIONS
    )
    kind_args: str = option("", "keyword arguments of a way to deal of one's own, as a table", table=True)
    split_users: bool = option(
        False, "user: with more clients than users, cut users by session instead of refusing"
    )
    alpha_leaves: float = option(
        0.5, "dirichlet: concentration of the classes over leaves (small = skewed)", above=0.0, maximum=1e6
    )
    alpha_clients: float = option(
        10.0, "dirichlet: concentration of a leaf's classes over its clients", above=0.0, maximum=1e6
    )
    imbalance: float = option(5.0, "imbalance: windows of leaf 0 relative to each other leaf", above=0.0)
    deal: str = option(
        "seed",
        'which users (or devices) stand where: "seed" deals them anew for every seed, "sorted" as their '
        'names are sorted, the same for every seed; or a seed of the deal alone, as "7"',
    )
    unseen_clients: int = option(
        0, "last clients of each leaf that hold whole users out of training; evaluated every round", minimum=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deal not in (BY_SEED, SORTED) and self.deal_seed is None:
            raise ConfigError(
                f'partition.deal must be "seed", "sorted" or a whole number of at least 0 in quotes, but is '
                f'{shown(self.deal)}; set for example partition.deal="7"'
            )

    @property
    def deal_seed(self) -> int | None:
        """The seed of the deal, where it has one of its own."""
        is_number = self.deal.isascii() and self.deal.isdecimal() and len(self.deal) < _MOST_DIGITS_OF_SEED
        return int(self.deal) if is_number else None


@dataclass(frozen=True)
class TrainConfig(Section):
    """Local training at a client."""

    SECTION = "train"
    model: str = option("cnn", "network; see fedge/training/models.py", register=parts.MODELS)
    model_args: str = option("", "keyword arguments of a model of one's own, as a table", table=True)
    lr: float = option(0.05, "SGD step size in global round 1", above=0.0, maximum=1e6)
    lr_decay: float = option(0.99, "factor on lr per global round", above=0.0, maximum=1.0)
    momentum: float = option(0.9, "SGD momentum", minimum=0.0, maximum=0.999)
    weight_decay: float = option(1e-4, "L2 penalty, as torch.optim.SGD applies it", minimum=0.0, maximum=1e6)
    clip_norm: float = option(1.0, "largest L2 norm of a step's gradient; 0 = off", minimum=0.0, maximum=1e30)
    label_smoothing: float = option(
        0.1, "share of the target spread over all classes", minimum=0.0, maximum=0.99
    )
    local_epochs: int = option(5, "passes over a client's training windows per leaf round", minimum=1)
    batch_size: int = option(32, "windows per step", minimum=1)
    prox_mu: float = option(
        0.0, "FedProx strength: pulls a client to its leaf's model; 0 = off", minimum=0.0, maximum=1e6
    )
    threads: int = option(
        1, "torch threads per client; another number gives other last bits", minimum=1, maximum=1024
    )
    processes: int = option(
        1,
        "processes that train a client's model together, each on its share of every batch; see "
        "docs/clusters.md",
        minimum=1,
        maximum=64,
    )
    kernel: str = option(
        "torch",
        "what computes steps on a CPU: PyTorch, or the native step where it knows the model; auto: also only "
        "where it is built; see docs/native.md",
        choices=("torch", "auto", "native"),
    )
    device: str = option(
        "auto", "auto takes a GPU when the federation gives one", choices=("auto", "cpu", "cuda")
    )
    precision: str = option(
        "float32",
        "how a GPU multiplies: in float32, or with factors of 10 bits, faster on large models; see "
        "docs/gpu.md",
        choices=("float32", "tf32"),
    )
    cuda_graph: str = option(
        "auto", "auto: on a GPU, record long training as a graph and replay it", choices=("auto", "off")
    )


@dataclass(frozen=True)
class ScaffoldConfig(Section):
    """SCAFFOLD (Karimireddy et al. 2020) between a leaf and its clients, and between cloud and leaves."""

    SECTION = "scaffold"
    enabled: bool = option(True, "control variates at every leaf")
    levels: int = option(
        1, "1: between leaf and clients; 2: between cloud and leaves, too (MTGC)", minimum=1, maximum=2
    )


_MOST_DIGITS = 10  # of a number of clusters


@dataclass(frozen=True)
class ClusterConfig(Section):
    """The cloud step: which leaves share a model."""

    SECTION = "cluster"
    enabled: bool = option(True, "false: the cloud averages all leaves into one model")
    start_round: int = option(1, "first global round with a cloud step", minimum=1)
    every: int = option(1, "global rounds from one cloud step to the next", minimum=1)
    regroup_every: int = option(
        1,
        "cloud steps from one comparison of leaves to the next once five in a row have changed nothing; in "
        "between, clusters stay as they are",
        minimum=1,
    )
    tau: float = option(
        0.7, "leaves at least this similar are joined; above 1 every leaf stays alone", minimum=-1.0
    )
    signal: str = option(
        "weights",
        "what is compared: last layers, updates, or losses at each other's clients; see docs/clustering.md",
        register=parts.SIGNALS,
    )
    signal_args: str = option("", "keyword arguments of a signal of one's own, as a table", table=True)
    method: str = option(
        "components",
        "how similar leaves become clusters; see docs/clustering.md",
        register=parts.GROUPINGS,
    )
    method_args: str = option(
        "", "keyword arguments of a method, as a table; see docs/baselines.md", table=True
    )
    linkage: str = option(
        "average",
        "agglomerative: similarity of two clusters: of their mean or worst pair",
        choices=CLUSTER_LINKAGES,
    )
    count: str = option(
        BY_THRESHOLD,
        'number of clusters: "threshold" cuts at tau; "auto" tests for groups (affinity); or as "3"',
    )
    test: str = option(
        "deal",
        "auto: what tells groups from chance: clients dealt anew between leaves, once for each common start; "
        "or signs flipped, in every step",
        choices=CLUSTER_TESTS,
    )
    level: float | str = option(
        0.01,
        'auto: largest p-value at which leaves are parted; "auto" is 0.01 where one leaf that differs from '
        "all others can reach that, else 0.05",
        above=0.0,
        maximum=0.5,
        words=("auto",),
    )
    patience: int = option(1, "cloud steps in a row that must find the same new groups", minimum=1)
    min_gain: float = option(
        0.05,
        "auto: by how much log loss must fall in a trial of new groups; 0.05 is about 5 % of the loss",
        minimum=0.0,
    )
    probe_every: int = option(
        0,
        "comparisons from one probe to the next once leaves start from different models: a leaf round from "
        "the mean of all, for comparison only; 0 = none",
        minimum=0,
    )
    watch: float = option(
        0.2,
        "auto by the deal test: by how much the log of a leaf's training loss must rise from one round to "
        "the next for its data to count as changed, and leaves to be compared anew at once; 0 = never",
        minimum=0.0,
    )
    losses_on: str = option(
        "val",
        "ifca, clove: windows on which clients evaluate the cloud's models; authors take what is trained on",
        choices=("val", "train"),
    )
    split_round: int = option(
        5,
        "flhc, kmeans, flux: global round in which leaves are grouped, once; before it all are one",
        minimum=1,
    )
    still_below: float | str = option(
        0.4,
        "cfl: a cluster may be cut when the norm of its mean update is below this (eps1); see "
        "docs/baselines.md for auto",
        minimum=0.0,
        words=("auto",),
    )
    pull_above: float | str = option(
        1.6,
        "cfl: and the largest norm of a leaf's update is above this (eps2); see docs/baselines.md for auto",
        minimum=0.0,
        words=("auto",),
    )
    blend: float | str = option(
        1.0,
        "share of the cluster's model in an offer, the rest is the mean of all leaves; auto: each leaf tries "
        "0, 0.25 … 1 on validation data",
        minimum=0.0,
        maximum=1.0,
        words=("auto",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count not in (BY_THRESHOLD, BY_TEST) and not self.fixed_count:
            raise ConfigError(
                f'cluster.count must be "threshold", "auto" or a number of at least 1 in quotes, but is '
                f'{shown(self.count)}; set for example cluster.count="auto"'
            )
        if self.enabled:
            self._refuse_contradictions()

    @property
    def fixed_count(self) -> int | None:
        """The number of clusters, where it is fixed."""
        return int(self.count) if self.count.isdecimal() and len(self.count) < _MOST_DIGITS else None

    @property
    def asks_training_losses(self) -> bool:
        """Whether clients are asked for losses on the windows that they train on."""
        return self.losses_on == "train" and parts.GROUPINGS.has(self.method, parts.OFFERS)

    @property
    def deals(self) -> bool:
        """Whether groups are told from chance by the deal test."""
        return self.enabled and self.count == BY_TEST and self.test == "deal"

    def _refuse_contradictions(self) -> None:
        """Raise ConfigError when signal, method and number of clusters do not go together."""
        method, has = self.method, partial(parts.GROUPINGS.has, self.method)
        if has(parts.BY_THRESHOLD_ONLY) and self.count != BY_THRESHOLD:
            raise ConfigError(
                f'cluster.method {method} needs cluster.count to be "threshold", but it is {self.count!r}; '
                'use cluster.method="agglomerative"'
            )
        if has(parts.NUMBERED) and self.fixed_count is None:
            raise ConfigError(
                f"cluster.method {self.method} needs cluster.count to be a number, but it is {self.count!r}; "
                f'set for example cluster.count="2"'
            )
        if self.count == BY_TEST and not has(parts.TESTED):
            raise ConfigError(
                f'cluster.count "auto" needs cluster.method to be '
                f"{' or '.join(parts.GROUPINGS.having(parts.TESTED))}, but it is "
                f'{self.method!r}; set cluster.count="threshold"'
            )
        if has(parts.BY_TIME) and self.patience > 1:
            raise ConfigError(
                f"cluster.method {self.method} needs cluster.patience to be 1, because it groups when it is "
                f"time, but it is {self.patience}; set cluster.patience=1"
            )
        if has(parts.NEVER_BY_THRESHOLD) and self.count == BY_THRESHOLD:
            raise ConfigError(
                f'cluster.method {method} needs cluster.count to be "auto" or a number, but it is '
                '"threshold"; set for example cluster.count="2"'
            )
        if self.count == BY_TEST and self.signal != "affinity":
            raise ConfigError(
                f'cluster.count "auto" needs cluster.signal to be affinity, whose test it is, but it is '
                f'{self.signal!r}; set cluster.signal="affinity"'
            )
        if self.deals and self.start_round > 1:
            raise ConfigError(
                f"cluster.test deal needs cluster.start-round to be 1, because it looks at what clients make "
                f"of the model that all begin with, but it is {self.start_round}; set cluster.start-round=1 "
                'or cluster.test="sign-flip"'
            )
        if self.count == BY_TEST and self.patience < 2:
            raise ConfigError(
                'cluster.count "auto" needs cluster.patience of at least 2, because new groups are tried in '
                f"the step after they were found, but it is {self.patience}; set cluster.patience=2"
            )


@dataclass(frozen=True)
class GateConfig(Section):
    """A leaf's choice between the offered cluster model and its own."""

    SECTION = "gate"
    enabled: bool = option(True, "false: every offer is taken")
    min_gain: float = option(
        0.0, "validation accuracy (0..1) an offer must add to be taken", minimum=-1.0, maximum=1.0
    )
    rule: str = option(
        "published",
        "an offer is taken if, on validation data, it is as accurate; as accurate after a round of training; "
        "not worse by more than one standard error; not worse by McNemar's test",
        register=parts.GATES,
    )
    rule_args: str = option("", "keyword arguments of a rule of one's own, as a table", table=True)
    level: float = option(
        0.05, "paired: level of the test; smaller takes more offers", above=0.0, maximum=0.5
    )

    @property
    def is_tentative(self) -> bool:
        """Whether an offer is trained for a round before the gate decides."""
        return self.enabled and parts.GATES.has(self.rule, parts.AFTER_ROUND)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule == "paired" and self.min_gain != 0:
            raise ConfigError(
                f"gate.rule paired needs gate.min-gain to be 0, because it tests whether both models are "
                f"equally good, but it is {self.min_gain:g}; use one-standard-error, or set gate.level"
            )


@dataclass(frozen=True)
class PersonalConfig(Section):
    """What a leaf keeps or makes for the clients that it knows."""

    SECTION = "personal"
    layers: str = option(
        "none", "what a leaf keeps as its own when it takes an offer: its last layer, its BatchNorm, both",
        choices=PERSONAL_LAYERS,
    )  # fmt: skip
    leaf_rounds: int = option(
        0, "leaf rounds that a leaf trains on before it serves the clients that it knows; 0 = none", minimum=0
    )
    every: int = option(
        0, "global rounds from one such model to the next; the last round always has one; 0 = only that",
        minimum=0,
    )  # fmt: skip
    unseen_clients: str = option(
        "cluster", "what clients outside training are served: their cluster's model, or the same as others",
        choices=("cluster", "same"),
    )  # fmt: skip

    @property
    def kept(self) -> tuple[str, ...]:
        """The kinds of layers that a leaf keeps."""
        return {"none": (), "both": ("head", "batch-norm")}.get(self.layers, (self.layers,))


@dataclass(frozen=True)
class GuardConfig(Section):
    """What the server does about clients that fail, hang or send what cannot count."""

    SECTION = "guard"
    start_timeout: float = option(
        120.0, "seconds until every client must have answered the first call", above=0.0
    )
    client_timeout: float = option(
        3600.0,
        "seconds a client may work on one call; then it is given up and its worker replaced",
        above=0.0,
    )
    return_timeout: float = option(
        30.0,
        "deployment: seconds for which an exchange waits for a SuperNode that went in it; then it goes on "
        "without",
        minimum=0.0,
    )
    stall_timeout: float = option(
        0.0,
        "seconds without a reply or a finished step until the run ends as stalled; 0: twice "
        "guard.client-timeout, at least 600",
        minimum=0.0,
    )
    retries: int = option(
        1,
        "times a failed client is tried again in the same leaf round, with the same random stream",
        minimum=0,
    )
    min_clients: int = option(
        1, "replies that a leaf needs in a leaf round; with fewer it keeps its model", minimum=1
    )
    max_norm_factor: float = option(
        0.0, "largest update, in medians of the leaf's recent updates; 0 = off, else at least 1", minimum=0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.max_norm_factor < 1:
            raise ConfigError(
                f"guard.max-norm-factor must be 0 or at least 1, because below 1 it refuses the median "
                f"client, but is {self.max_norm_factor}; try guard.max-norm-factor=5"
            )


@dataclass(frozen=True)
class PrivacyConfig(Section):
    """Differential privacy of clients: `fedge.privacy.mechanism`; see docs/privacy.md."""

    SECTION = "privacy"
    kind: str = option(
        "off", "who clips, and how: the leaf, or each client (local: which adds the noise, too)",
        choices=PRIVACY_KINDS,
    )  # fmt: skip
    clip_norm: float = option(1.0, "largest L2 norm of a client's update; adaptive: the first one", above=0.0)
    noise_multiplier: float = option(
        1.0, "noise of the leaf's mean: its std is this × clip-norm / clients asked; 0 = none", minimum=0.0
    )
    clip_quantile: float = option(
        0.5, "adaptive: share of updates that are to stay unclipped", minimum=0.0, maximum=1.0
    )
    clip_lr: float = option(0.2, "adaptive: step size of the clipping norm", above=0.0)
    epsilon: float = option(1.0, "local: privacy budget of each leaf round", above=0.0)
    delta: float = option(
        1e-5, "probability that the budget does not hold: of a leaf round (local), and of the whole run",
        above=0.0, maximum=0.5,
    )  # fmt: skip

    @property
    def is_adaptive(self) -> bool:
        """Whether the clipping norm follows a quantile of the updates' norms."""
        return self.kind.endswith("-adaptive")


@dataclass(frozen=True)
class TransferConfig(Section):
    """How models travel between server and clients that are other processes."""

    SECTION = "transfer"
    share_above_mb: float = option(
        8.0,
        "models larger than this (10^6 bytes) go through files that all processes map, not in messages",
        minimum=0.0,
    )


@dataclass(frozen=True)
class DevicesConfig(Section):
    """What clients are like as devices on the virtual clock; see docs/devices.md."""

    SECTION = "devices"
    pieces: int = option(
        0, "cut users into as many devices as clients, each with so many stretches of its user's time: the "
        "more, the more alike are their classes; 0: clients are dealt as partition.kind says", minimum=0,
        maximum=1000,
    )  # fmt: skip
    least_windows: int = option(
        1, "training windows that a device has at least, if need be together with its neighbours", minimum=1
    )
    preset: str = option("lognormal", "how fast devices compute, send and receive", register=parts.DEVICES)
    preset_args: str = option("", "keyword arguments of the preset, as a table", table=True)
    availability: str = option(
        "always", "when a device can be given work; a job during which it goes is lost",
        register=parts.AVAILABILITY,
    )  # fmt: skip
    availability_args: str = option("", "keyword arguments of the availability, as a table", table=True)
    dropout: float = option(0.0, "probability that a device drops out in a job", minimum=0.0, maximum=0.99)
    traced: int = option(8, "devices whose jobs are listed one by one in devices/jobs.csv", minimum=0)


@dataclass(frozen=True)
class AsynchronyConfig(Section):
    """Learning on a virtual clock: who waits for whom; see docs/devices.md."""

    SECTION = "asynchrony"
    rule: str = option(
        "off", "what a server makes of what its devices bring, when; off: global rounds in real time",
        register=parts.SERVER_RULES,
    )  # fmt: skip
    rule_args: str = option("", "keyword arguments of the rule, as a table: rule-args.buffer=10", table=True)
    concurrency: int = option(10, "devices at work at a time, over all leaves", minimum=1)
    max_staleness: int = option(
        0, "updates that a server has made since, with more of which an arrival is dropped; 0: any",
        minimum=0,
    )  # fmt: skip
    over_selection: float = option(
        1.0,
        "rounds: devices that are asked for each one whose reply is waited for",
        minimum=1.0,
        maximum=100.0,
    )
    deadline_s: float = option(
        0.0, "rounds: virtual seconds after which a round ends with whoever is there; 0: none", minimum=0.0
    )
    evaluate_every_s: float = option(
        10.0, "virtual seconds from one evaluation to the next: a row of global_rounds.csv each",
        minimum=0.001, maximum=1e9,
    )  # fmt: skip

    groups: str = option(
        "",
        'leaves that share a model at the cloud, as "0,0,1,1"; empty: all, or as cluster.enabled finds at '
        "evaluations",
    )
    cloud_rule: str = option(
        "fedbuff", "what the cloud makes of what its leaves bring, when", register=parts.CLOUD_RULES
    )
    cloud_rule_args: str = option(
        "", "keyword arguments of the cloud's rule, as a table; its buffer is 1 unless given", table=True
    )
    cloud_every: int = option(1, "versions that a leaf makes from one exchange to the next", minimum=1)
    cloud_delay_s: float = option(
        0.5, "virtual seconds from a leaf to the cloud, and back; 0: also of the models' bytes", minimum=0.0,
        maximum=1e6,
    )  # fmt: skip
    cloud_megabytes_s: float = option(10.0, "10^6 bytes per virtual second between leaf and cloud", above=0.0)

    @property
    def is_on(self) -> bool:
        """Whether the run is on a virtual clock."""
        return self.rule != "off"


@dataclass(frozen=True)
class CheckpointConfig(Section):
    """How often the state of a run is kept, so that it can go on after whatever stopped it."""

    SECTION = "checkpoint"
    every: int = option(1, "global rounds from one checkpoint to the next; 0 = none", minimum=0)
    keep: int = option(2, "newest checkpoints that stay; older ones are removed", minimum=1)


@dataclass(frozen=True)
class Config(Section):
    """A whole run, checked. `from_run_config` makes it, `to_run_config` gives the flat mapping back."""

    num_server_rounds: int = option(100, "global rounds", minimum=1)
    seed: int = option(42, "root of every random stream; SEED in the environment wins", minimum=0)
    clients: int | str = option(
        "auto",
        "clients; auto: one per user where users are dealt and the data name several, else as many as the "
        "federation has",
        minimum=1, words=("auto",), kind=int,
    )  # fmt: skip
    run_name: str = option("", "name of the run folder; empty: date, time and seed")
    runs_dir: str = option("runs", "folder of all run folders")
    resume: str = option("", 'run to go on with: "latest" or its folder, as "runs/NAME"; empty: a new run')
    report: bool = option(True, "write report.html when the run has ended; takes seconds")
    scenario: str = option(
        "none", "shift planted in groups of leaves, a known truth to find; see docs/study.md",
        register=parts.SCENARIOS,
    )  # fmt: skip
    scenario_args: str = option("", "keyword arguments of a scenario of one's own, as a table", table=True)
    scenario_groups: int = option(2, "groups of leaves that differ; group 0 stays as it is", minimum=2)
    scenario_sizes: str = option(
        "", 'leaves of each group, as "1,5"; empty: scenario-groups groups, as equal as can be'
    )
    scenario_from: int = option(
        1, "global round in which groups begin to differ; before it all are as group 0", minimum=1
    )
    scenario_until: int = option(0, "last global round in which groups differ; 0: to the end", minimum=0)
    scenario_moves: str = option(
        "", 'global rounds in which leaves go to another group, and how many, as "10:1,20:2"; who is drawn'
    )
    tracker: str = option(
        "none",
        "where the numbers of every round also go; each but none is an extra, as pip install 'fedge[mlflow]'",
        register=parts.TRACKERS,
    )
    tracker_args: str = option("", "keyword arguments of a tracker of one's own, as a table", table=True)
    callbacks: str = option(
        "",
        "what is told of every round and may end the run, with commas between; each has its arguments in "
        "callbacks-args; see docs/extend.md",
        register=parts.CALLBACKS, many=True,
    )  # fmt: skip
    callbacks_args: str = option(
        "", "a table of keyword arguments per callback, as early-stopping.patience=5", table=True
    )
    hierarchy: HierarchyConfig = HierarchyConfig()
    leaf: LeafConfig = LeafConfig()
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    train: TrainConfig = TrainConfig()
    scaffold: ScaffoldConfig = ScaffoldConfig()
    cluster: ClusterConfig = ClusterConfig()
    gate: GateConfig = GateConfig()
    personal: PersonalConfig = PersonalConfig()
    guard: GuardConfig = GuardConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    transfer: TransferConfig = TransferConfig()
    devices: DevicesConfig = DevicesConfig()
    asynchrony: AsynchronyConfig = AsynchronyConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_contradictions(self)
        name = self.run_name
        taken = name in (".", "..", "latest")
        if any(c in name for c in "/\\") or not name.isprintable() or taken or len(name.encode()) > 200:
            raise ConfigError(
                f"run-name must be a plain folder name, but is {shown(name)}; "
                f"leave it empty for date and time"
            )
        if not self.runs_dir.strip() or not self.runs_dir.isprintable():
            raise ConfigError(
                f"runs-dir must be the path of a folder, but is {shown(self.runs_dir)}; "
                'set for example runs-dir="runs"'
            )


SECTIONS: dict[str, type[Section]] = {
    f.name: f.type  # type: ignore[misc]
    for f in fields(Config)
    if not f.metadata
}


@cache
def options() -> Mapping[str, tuple[Scalar, Mapping[str, Any]]]:
    """Return every key with its default and its declaration, in the order of the classes."""
    table: dict[str, tuple[Scalar, Mapping[str, Any]]] = {}
    classes: dict[str, Any] = {"": Config, **SECTIONS}
    for section, kind in classes.items():
        for declared in fields(kind):
            if declared.metadata:
                table[key_of(section, declared.name)] = (cast(Scalar, declared.default), declared.metadata)
    return MappingProxyType(table)


def check_keys(keys: list[str]) -> None:
    """Raise ConfigError for the first key that no option has, and that lies in no table of arguments."""
    known = list(options())
    for key in keys:
        if key not in known and _table_of(key) is None:
            raise ConfigError(
                f"{key} is not a configuration key"
                f"{nearest(key, known) or '; pyproject.toml lists all of them'}"
            )


def _table_of(key: str) -> str | None:
    """Return the table of arguments that a key lies in: "train.model-args" for "train.model-args.x"."""
    return next((table for table in _TABLES if key.startswith(f"{table}.")), None)


_TABLES = tuple(key for key, (_, rule) in options().items() if rule["table"])
_LISTS = tuple(key for key, (_, rule) in options().items() if rule["many"])


def fold_tables(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat mapping in which every table of keyword arguments is one entry, as JSON text.

    ``{"train.model-args.width": 64}`` → ``{"train.model-args": '{"width": 64}'}``. Flower takes no keys that
    pyproject.toml does not list, and no lists, so a list of names becomes one text.

    Raises:
        ConfigError: a table is not one.
    """
    folded = {key: _listed(key, value) for key, value in run_config.items() if _table_of(key) is None}
    for key, value in run_config.items():
        table = _table_of(key)
        if table is not None:
            text = folded.get(table, "")
            arguments = arguments_of(text if isinstance(text, str) else json.dumps(text), table)
            inner = arguments
            *outer, last = key.removeprefix(f"{table}.").split(".")
            for word in outer:
                inner = inner.setdefault(word, {})
            inner[last] = value
            folded[table] = json.dumps(arguments, ensure_ascii=False)
    return folded


def _listed(key: str, value: Any) -> Any:
    """Return a list of names as the text that Flower takes, ``["a", "b"]`` → "a,b"; all else as it is."""
    is_list = key in _LISTS and isinstance(value, list) and all(type(name) is str for name in value)
    return ",".join(value) if is_list else value


def from_run_config(run_config: Mapping[str, Any]) -> Config:
    """Build the configuration of a run from Flower's flat mapping; absent keys take their defaults.

    Raises:
        ConfigError: an unknown key, a wrong type, a value out of range, or a contradiction.
    """
    check_keys(list(run_config))
    run_config = fold_tables(run_config)
    return Config(
        **_values(run_config, "", Config),
        **{name: cast(Any, kind)(**_values(run_config, name, kind)) for name, kind in SECTIONS.items()},
    )


_SectionT = TypeVar("_SectionT", bound=Section)


def _values(run_config: Mapping[str, Any], section: str, kind: type[_SectionT]) -> dict[str, Any]:
    """Return the given values of one section by field name."""
    named = {f.name: key_of(section, f.name) for f in fields(kind) if f.metadata}  # type: ignore[arg-type]
    return {name: run_config[key] for name, key in named.items() if key in run_config}


def to_run_config(config: Config) -> dict[str, Scalar]:
    """Return `config` as Flower's flat mapping; `from_run_config` of it is equal to `config`."""
    flat: dict[str, Scalar] = {}
    for section, holder in [("", config), *((name, getattr(config, name)) for name in SECTIONS)]:
        for declared in fields(holder):
            if declared.metadata:
                flat[key_of(section, declared.name)] = getattr(holder, declared.name)
    return flat
