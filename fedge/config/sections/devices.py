"""Options of simulated devices and of learning without rounds."""

from dataclasses import dataclass

from fedge.config import parts
from fedge.config.choices import CLOCKS
from fedge.config.option import Section, option


@dataclass(frozen=True)
class DevicesConfig(Section):
    """Speed, availability and network of clients as devices on the virtual clock; see docs/devices.md."""

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
    duration: str = option(
        "preset", "how long a job trains; one of your own is asked at every job", register=parts.DURATIONS
    )
    duration_args: str = option("", "keyword arguments of a duration of your own, as a table", table=True)
    availability: str = option(
        "always", "when a device can be given work; a job during which it goes is lost",
        register=parts.AVAILABILITY,
    )  # fmt: skip
    availability_args: str = option("", "keyword arguments of the availability, as a table", table=True)
    dropout: float = option(0.0, "probability that a device drops out in a job", minimum=0.0, maximum=0.99)
    partial_work: bool = option(
        False, "a device that goes, or whose time is over, has sent what it has trained by then; that counts "
        "by its share of the steps, where the rule takes it",
    )  # fmt: skip
    selection: str = option(
        "uniform", "who of the devices that are idle and there is given work", register=parts.SELECTIONS
    )
    selection_args: str = option("", "keyword arguments of the selection, as a table", table=True)
    train_watts: float = option(
        0.0,
        "watts that a device takes while it trains, where the preset says none; 0: not known",
        minimum=0.0,
    )
    radio_watts: float = option(
        0.0, "watts that a device takes while it receives or sends, likewise", minimum=0.0
    )
    time_rounds: bool = option(
        False, "global rounds take the virtual time, and the energy, of devices as the preset has them, "
        "beside their real time; what is computed stays the same",
    )  # fmt: skip
    traced: int = option(8, "devices whose jobs are listed one by one in devices/jobs.csv", minimum=0)


@dataclass(frozen=True)
class AsynchronyConfig(Section):
    """Learning on a virtual clock: rounds, buffers and waiting; see docs/devices.md."""

    SECTION = "asynchrony"
    rule: str = option(
        "off", "what a server makes of what its devices bring, when; off: global rounds in real time",
        register=parts.SERVER_RULES,
    )  # fmt: skip
    rule_args: str = option("", "keyword arguments of the rule, as a table: rule-args.buffer=10", table=True)
    clock: str = option(
        "virtual", "real: jobs take as long as they take, and whoever is back first is taken in first; "
        "devices/arrivals.csv tells the order", choices=CLOCKS,
    )  # fmt: skip
    replay: str = option(
        "",
        "on the virtual clock: a run on the real one, folder or log, whose jobs end here when they did there",
    )
    concurrency: int = option(9, "devices at work at a time, over all leaves", minimum=1)
    refill: int = option(
        1, "free places of a leaf at which it gives out work again; rounds begin anew as a whole", minimum=1
    )
    timeout_s: float = option(
        0.0, "virtual seconds after which a server without rounds gives a job up; 0: never", minimum=0.0,
        maximum=1e9,
    )  # fmt: skip
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
    end_versions: int = option(
        0, "models made by the servers whose models are served, after which the run ends; 0: any", minimum=0
    )
    end_updates: int = option(0, "results taken in, after which the run ends; 0: any", minimum=0)
    end_megabytes: float = option(
        0.0, "10^6 bytes of models moved on both tiers, after which the run ends; 0: any", minimum=0.0
    )
    end_joules: float = option(
        0.0, "joules that devices spend on jobs, after which the run ends; 0: any", minimum=0.0
    )
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

    leaf_link_megabytes_s: float = option(
        0.0,
        "10^6 bytes per virtual second that the devices of a leaf share, each way; 0: nothing is shared",
        minimum=0.0, maximum=1e5,
    )  # fmt: skip
    cloud_link_megabytes_s: float = option(
        0.0,
        "10^6 bytes per virtual second that leaves share at the cloud, each way; 0: nothing is shared",
        minimum=0.0, maximum=1e5,
    )  # fmt: skip

    @property
    def is_real(self) -> bool:
        """Whether jobs end when their replies come."""
        return self.clock == "real"

    @property
    def is_on(self) -> bool:
        """Whether the run is on a virtual clock."""
        return self.rule != "off"
