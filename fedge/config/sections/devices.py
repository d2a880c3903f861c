"""Options of simulated devices and of asynchronous learning."""

from dataclasses import dataclass
from typing import Any

from fedge.config.registers import parts
from fedge.config.registers.choices import CLOCKS
from fedge.config.registers.option import KEYWORDS, Section, arguments_of, option


@dataclass(frozen=True)
class DevicesConfig(Section):
    """Speed, availability and network of clients as devices on the virtual clock; see docs/devices.md."""

    SECTION = "devices"
    pieces: int = option(
        0,
        "stretches of a user's time per device, if users are cut into as many devices as clients "
        "(more: more similar classes); 0: partition.kind deals",
        minimum=0,
        maximum=1000,
    )
    least_windows: int = option(
        1, "fewest training windows of a device, if necessary shared with neighbours", minimum=1
    )
    preset: str = option("lognormal", "speeds of devices", register=parts.DEVICES)
    preset_args: str = option("", KEYWORDS, table=True)
    duration: str = option(
        "preset",
        "training time of a job; your own function is called for every job",
        register=parts.DURATIONS,
    )
    duration_args: str = option("", KEYWORDS, table=True)
    availability: str = option(
        "always", "presence of devices; a job is lost if its device leaves",
        register=parts.AVAILABILITY,
    )  # fmt: skip
    availability_args: str = option("", KEYWORDS, table=True)
    dropout: float = option(0.0, "probability of a dropout per job", minimum=0.0, maximum=0.99)
    partial_work: bool = option(
        False,
        "a leaving or late device sends its work so far, counted by its share of steps, if "
        "the rule supports it",
    )
    selection: str = option(
        "uniform", "choice of the idle device for the next job", register=parts.SELECTIONS
    )
    selection_args: str = option("", KEYWORDS, table=True)
    train_watts: float = option(
        0.0,
        "watts of a training device, unless set by the preset; 0: unknown",
        minimum=0.0,
    )
    radio_watts: float = option(0.0, "watts of a receiving or sending device, likewise", minimum=0.0)
    time_rounds: bool = option(
        False,
        "report virtual time and energy of global rounds on the preset's devices; results are unchanged",
    )
    traced: int = option(8, "devices with jobs in devices/jobs.csv", minimum=0)


@dataclass(frozen=True)
class AsynchronyConfig(Section):
    """Learning on a virtual clock: rounds, buffers and waiting; see docs/devices.md."""

    SECTION = "asynchrony"
    rule: str = option(
        "off", "server's rule for arriving updates; off: global rounds in real time",
        register=parts.SERVER_RULES,
    )  # fmt: skip
    rule_args: str = option("", KEYWORDS, table=True)
    clock: str = option(
        "virtual",
        "real: jobs take their real time and arrive in their real order, logged in devices/arrivals.csv",
        choices=CLOCKS,
    )
    replay: str = option(
        "",
        "virtual clock: folder or log of a run on the real one, with the same ends of jobs",
    )
    concurrency: int = option(9, "devices at work at a time, over all leaves", minimum=1)
    refill: int = option(
        1, "free places of a leaf before it assigns work again; rounds start as a whole", minimum=1
    )
    timeout_s: float = option(
        0.0,
        "without rounds: virtual seconds after which a job is given up; 0: never",
        minimum=0.0,
        maximum=1e9,
    )
    max_staleness: int = option(
        0, "largest staleness of an arrival, in versions; 0: any",
        minimum=0,
    )  # fmt: skip
    over_selection: float = option(
        1.0,
        "rounds: asked devices per awaited reply",
        minimum=1.0,
        maximum=100.0,
    )
    deadline_s: float = option(
        0.0, "rounds: virtual seconds after which a round ends with the present replies; 0: none", minimum=0.0
    )
    evaluate_every_s: float = option(
        10.0,
        "virtual seconds between evaluations, each a row of global_rounds.csv",
        minimum=0.001,
        maximum=1e9,
    )
    end_versions: int = option(0, "served versions after which the run ends; 0: no limit", minimum=0)
    end_updates: int = option(0, "used updates after which the run ends; 0: no limit", minimum=0)
    end_megabytes: float = option(
        0.0, "10^6 bytes of models, on both tiers, after which the run ends; 0: no limit", minimum=0.0
    )
    end_joules: float = option(
        0.0, "joules of devices' jobs after which the run ends; 0: no limit", minimum=0.0
    )
    groups: str = option(
        "",
        'leaves that share a model at the cloud, as "0,0,1,1"; empty: all, or found by '
        "cluster.enabled at evaluations",
    )
    cloud_rule: str = option("fedbuff", "cloud's rule for arriving models", register=parts.CLOUD_RULES)
    cloud_rule_args: str = option("", "its keyword arguments; buffer is 1 unless given", table=True)
    cloud_every: int = option(1, "versions of a leaf between exchanges", minimum=1)
    cloud_delay_s: float = option(
        0.5,
        "virtual seconds from a leaf to the cloud, and back; 0 on the virtual clock: transfers take none",
        minimum=0.0,
        maximum=1e6,
    )
    cloud_megabytes_s: float = option(10.0, "10^6 bytes per virtual second between leaf and cloud", above=0.0)

    leaf_link_megabytes_s: float = option(
        0.0,
        "10^6 bytes per virtual second shared by a leaf's devices, each way; 0: not shared",
        minimum=0.0, maximum=1e5,
    )  # fmt: skip
    cloud_link_megabytes_s: float = option(
        0.0,
        "10^6 bytes per virtual second shared by leaves at the cloud, each way; 0: not shared",
        minimum=0.0, maximum=1e5,
    )  # fmt: skip
    tiers: str = option(
        "",
        "rules and links of tiers between cloud and leaves: tiers.region.rule, rule-args, "
        "every, delay-s, megabytes-s, link-megabytes-s; timed rounds: delay-s and megabytes-s",
        table=True,
    )

    @property
    def of_tiers(self) -> dict[str, Any]:
        """Name or number of a tier between cloud and leaves → its own options."""
        return arguments_of(self.tiers, "asynchrony.tiers")

    @property
    def is_real(self) -> bool:
        """Whether a job ends when its reply arrives, rather than at a simulated time."""
        return self.clock == "real"

    @property
    def is_on(self) -> bool:
        """Whether the run is on a virtual clock."""
        return self.rule != "off"
