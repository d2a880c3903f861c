"""Round context, in every train and evaluate message: seed, round, data and limits."""

from dataclasses import asdict, dataclass
from typing import Final, Literal

from flwr.app import ConfigRecord, Message, MetricRecord

from fedge.exchange.content import METRICS, config_of
from fedge.seeding import Purpose
from fedge.states.records import entries

# Lines: a leaf's model, its own line beside a tentative offer, the model of the cluster proposed for it, the
# one fine-tuned for its clients, or the run's first model, for comparison only.
Line = Literal["leaf", "own-line", "trial", "personal", "probe"]
LEAF: Final = "leaf"
OWN_LINE: Final = "own-line"
TRIAL: Final = "trial"
PERSONAL: Final = "personal"
PROBE: Final = "probe"

_NUMBERS = ("mean", "std")
_SELDOM = ("most_windows", "kernel")  # named in a message if not empty
VERSION = "version"  # among the metrics of a reply: of its starting model


@dataclass(frozen=True)
class RoundContext:
    """Facts of a round for a client, beyond its configuration.

    Attributes:
        seed: seed of the run.
        global_round: 1, 2, …
        leaf_round: counted through the whole run, 1, 2, …
        data_folder: the run's client data; empty if clients own their data, or find it elsewhere.
        log_path: the run's log file; empty if invisible to clients.
        server: the server's process, as in `fedge.process.identity.process_name`; a client in another process
            sends its log to `log_path`.
        timeout_s: seconds allowed to the client.
        line: kind of line. Only the leaf's own model changes a client's memory; the personal one draws from
            separate random streams. A probe trains as in global round 1.
        windows: key of the clients' data for `fedge.engine.ray_objects.take`; empty for data in files.
        mean, std: mean and standard deviation of each channel, to scale clients' own data; empty for no
            scaling.
        options: options of the run, as JSON, if clients have others; see `fedge.exchange.content`.
        local_steps: steps of every client in a leaf round, in place of epochs; 0 for epochs.
        kernel: kernel of all clients' steps (`fedge.training.kernels`); empty if the options determine it.
        most_windows: number of evenly spaced training windows to use in a probe; 0 for all.
    """

    seed: int
    global_round: int
    leaf_round: int
    data_folder: str
    log_path: str
    server: str
    timeout_s: float
    line: Line = "leaf"
    windows: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    options: str = ""
    local_steps: int = 0
    most_windows: int = 0
    kernel: str = ""

    def stream_of(self, index: int) -> tuple[int, ...]:
        """Coordinates of the random streams of a client (or leaf), beside seed and purpose."""
        return (self.leaf_round, index, *((int(Purpose.PERSONAL),) if self.line == PERSONAL else ()))

    @property
    def round_of_steps(self) -> int:
        """Global round for the learning rate."""
        return 1 if self.line == PROBE else self.global_round

    def to_record(self) -> ConfigRecord:
        """The round context as a Flower record."""
        values = asdict(self)
        for name in _NUMBERS:
            values[name] = list(values[name])
        for name in _SELDOM:
            if not values[name]:
                del values[name]
        return ConfigRecord({name: value for name, value in values.items() if value != []})

    @property
    def version(self) -> int:
        """Version of the models in the message: the round of sending, which replies repeat."""
        return self.leaf_round

    @staticmethod
    def from_message(message: Message) -> "RoundContext":
        """Read the round context of a train or evaluate message; other entries of its record are ignored."""
        record = entries(config_of(message))
        values = {name: record[name] for name in _ALWAYS}
        values.update({name: record[name] for name in _SELDOM if name in record})
        values.update({name: tuple(record[name]) for name in _NUMBERS if name in record})
        return RoundContext(**values)


_ALWAYS = tuple(
    name for name in RoundContext.__dataclass_fields__ if name not in (*_NUMBERS, *_SELDOM)
)  # computed once, as thousands of messages are read


def is_of_version(reply: Message, question: Message) -> bool:
    """Whether a reply started from the model of its message.

    If neither has a version, as in a hello, there is no model. A reply without metrics has no version, and
    its reader refuses it.
    """
    metrics = entries(reply.content).get(METRICS)
    if not isinstance(metrics, MetricRecord):
        return True
    version = entries(metrics).get(VERSION)
    return type(version) is int and version == asked_version(question)


def asked_version(message: Message) -> int:
    """Version of the models in a train or evaluate message, without reading its whole round context."""
    version: int = entries(config_of(message))["leaf_round"]
    return version


def asking_server(message: Message) -> str:
    """Server process of a train or evaluate message, without reading its whole round context."""
    server: str = entries(config_of(message))["server"]
    return server
