"""All options of a run: those without a section, and one field per section; each is checked on its own."""

from dataclasses import dataclass, field, replace

from fedge.config.registers import parts
from fedge.config.registers.option import KEYWORDS, ConfigError, Section, option, shown
from fedge.config.sections.cluster import ClusterConfig
from fedge.config.sections.data import DataConfig, PartitionConfig
from fedge.config.sections.devices import AsynchronyConfig, DevicesConfig
from fedge.config.sections.evaluate import EvaluateConfig
from fedge.config.sections.guard import CheckpointConfig, GuardConfig, TransferConfig
from fedge.config.sections.hierarchy import CloudConfig, HierarchyConfig, LeafConfig
from fedge.config.sections.privacy import PrivacyConfig
from fedge.config.sections.serving import GateConfig, PersonalConfig
from fedge.config.sections.train import ScaffoldConfig, TrainConfig
from fedge.config.sections.uplink import UplinkConfig


@dataclass(frozen=True)
class RunOptions(Section):
    """Options of a whole run, each checked on its own; `fedge.config.config.Config` checks them together."""

    num_server_rounds: int = option(100, "global rounds", minimum=1, also=("num-rounds", "global-rounds"))
    seed: int = option(
        42,
        "root of every random stream; SEED in the environment wins",
        minimum=0,
        also=("random-seed", "random-state"),
    )
    clients: int | str = option(
        "auto",
        "auto: one per user if users are dealt and the data have several, else the federation's number",
        minimum=1,
        words=("auto",),
        kind=int,
        also=("num-clients", "n-clients", "num-supernodes"),
    )
    run_name: str = option("", "name of the run folder; empty: date, time and seed")
    runs_dir: str = option("runs", "folder of all run folders")
    resume: str = option("", '"latest" or a run\'s folder, as "runs/NAME"; empty: a new run')
    report: bool = option(True, "write report.html at the end; takes seconds")
    scenario: str = option(
        "none",
        "shift planted in groups of leaves; see docs/study.md",
        register=parts.SCENARIOS,
    )
    scenario_args: str = option("", KEYWORDS, table=True)
    scenario_groups: int = option(2, "groups of leaves; group 0 is unchanged", minimum=2)
    scenario_sizes: str = option("", 'leaves per group, as "1,5"; empty: as equal as possible')
    scenario_from: int = option(
        1, "first global round in which groups differ; before, all are like group 0", minimum=1
    )
    scenario_until: int = option(0, "last global round in which groups differ; 0: to the end", minimum=0)
    scenario_moves: str = option(
        "",
        'rounds in which leaves, drawn at random, change their group, and how many, as "10:1,20:2"',
    )
    tracker: str = option(
        "none",
        "experiment tracker for every round's numbers; each is an extra, as pip install 'fedge[mlflow]'",
        register=parts.TRACKERS,
    )
    tracker_args: str = option("", KEYWORDS, table=True)
    callbacks: str = option(
        "",
        "callbacks, separated by commas; see docs/extend.md",
        register=parts.CALLBACKS,
        many=True,
    )
    callbacks_args: str = option(
        "", "keyword arguments per callback, as early-stopping.patience=5", table=True
    )
    hierarchy: HierarchyConfig = field(default_factory=HierarchyConfig)
    leaf: LeafConfig = field(default_factory=LeafConfig)
    cloud: CloudConfig = field(default_factory=CloudConfig)
    data: DataConfig = field(default_factory=DataConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    scaffold: ScaffoldConfig = field(default_factory=ScaffoldConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    personal: PersonalConfig = field(default_factory=PersonalConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    uplink: UplinkConfig = field(default_factory=UplinkConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    asynchrony: AsynchronyConfig = field(default_factory=AsynchronyConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        name = self.run_name
        is_reserved = name == "latest" or name.startswith(("-", "."))  # the link; an option; hidden
        if any(c in name for c in "/\\") or not name.isprintable() or is_reserved or len(name.encode()) > 200:
            raise ConfigError(
                f"run-name must be a plain folder name, but is {shown(name)}; "
                f"leave it empty for date and time"
            )
        if not self.runs_dir.strip() or not self.runs_dir.isprintable():
            raise ConfigError(
                f"runs-dir must be the path of a folder, but is {shown(self.runs_dir)}; "
                'set for example runs-dir="runs"'
            )

    @property
    def meeting_tiers(self) -> frozenset[int]:
        """Tiers whose servers group children, average by another rule, or have gates; always tier 0."""
        tiers = {0}
        if self.cluster.enabled:
            tiers |= self.hierarchy.parse_tiers(self.cluster.tiers, "cluster.tiers")
        if self.gate.enabled:
            tiers |= self.hierarchy.parse_tiers(self.gate.tiers, "gate.tiers")
        if not self.cloud.is_mean:
            tiers |= self.hierarchy.parse_tiers(self.cloud.rule_tiers, "cloud.rule-tiers")
        return frozenset(tiers)

    def cluster_at(self, tier: int) -> ClusterConfig:
        """Clustering options for the servers of a tier."""
        applies = tier in self.hierarchy.parse_tiers(self.cluster.tiers, "cluster.tiers")
        return self.cluster if applies else replace(self.cluster, enabled=False)

    def gate_at(self, tier: int) -> GateConfig:
        """Gate options for the children of a tier's servers."""
        applies = tier in self.hierarchy.parse_tiers(self.gate.tiers, "gate.tiers")
        return self.gate if applies else replace(self.gate, enabled=False)

    def has_rule_at(self, tier: int) -> bool:
        """Whether servers of a tier combine models by a rule other than the mean."""
        tiers = self.hierarchy.parse_tiers(self.cloud.rule_tiers, "cloud.rule-tiers")
        return not self.cloud.is_mean and tier in tiers
