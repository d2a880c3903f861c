"""Round context in every train and evaluate message: where the run stands."""

from dataclasses import asdict, dataclass
from typing import Final, Literal

from flwr.app import ConfigRecord, Message, MetricRecord

from fedge.exchange.content import METRICS, config_of
from fedge.seeding import Purpose
from fedge.states.records import entries

# Lines: a leaf's model, its own line beside a tentative offer, the model of the cluster that is
# proposed for it, the one fine-tuned for its clients, or the run's first model, for comparison only.
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
    """Context of a round for a client beyond its configuration.

    Attributes:
        seed: root of all random streams of the run.
        global_round: 1, 2, …
        leaf_round: counted through the whole run, 1, 2, …
        data_folder: the run's client data; empty if clients own their data, or find it elsewhere.
        log_path: the run's log file; empty if invisible to clients.
        server: the server's process, as in `fedge.process.identity.process_name`; a client in another process
            sends its log to `log_path`.
        timeout_s: seconds allowed to the client.
        line: kind of line. All but the leaf's own model leave no trace at the client, and the
            personal one draws from streams of its own. A probe trains as in global round 1.
        windows: `fedge.engine.ray_objects.take` finds the clients' data by them; empty for data in files.
        mean, std: of each channel, for the scaling of clients' own data; empty for no scaling.
        options: of the run, as JSON, where clients have those of another; see `fedge.exchange.content`.
        local_steps: of every client in a leaf round, in place of epochs; 0 for epochs.
        kernel: of the steps of all clients (`fedge.training.kernels`); empty if determined by the options.
        most_windows: a client's training windows in a probe, at equal distances; 0 for all.
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

    def stream_of(self, who: int) -> tuple[int, ...]:
        """Where, beside seed and purpose, the random streams of a client (or leaf) stand."""
        return (self.leaf_round, who, *((int(Purpose.PERSONAL),) if self.line == PERSONAL else ()))

    @property
    def round_of_steps(self) -> int:
        """The global round of the step size."""
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
        """Of the models in the message: the round of sending, as stated in replies."""
        return self.leaf_round

    @staticmethod
    def of(message: Message) -> "RoundContext":
        """Read the round context of a train or evaluate message; other entries of its record are ignored."""
        record = entries(config_of(message))
        values = {name: record[name] for name in _ALWAYS}
        values.update({name: record[name] for name in _SELDOM if name in record})
        values.update({name: tuple(record[name]) for name in _NUMBERS if name in record})
        return RoundContext(**values)


_ALWAYS = tuple(
    name for name in RoundContext.__dataclass_fields__ if name not in (*_NUMBERS, *_SELDOM)
)  # as many fields as there are, looked up in each of thousands of messages


def is_of_version(reply: Message, question: Message) -> bool:
    """Whether a reply started from the question's model.

    Where neither says, as at a first call, there is no other model; a reply without metrics says nothing at
    all and is refused by its reader.
    """
    metrics = entries(reply.content).get(METRICS)
    if not isinstance(metrics, MetricRecord):
        return True
    version = entries(metrics).get(VERSION)
    return type(version) is int and version == asked_version(question)


def asked_version(message: Message) -> int:
    """The version of a train or evaluate message's models; the rest of its round context is not read."""
    version: int = entries(config_of(message))["leaf_round"]
    return version


def asking_server(message: Message) -> str:
    """The server's process of a train or evaluate message; the rest of its round context is not read."""
    server: str = entries(config_of(message))["server"]
    return server
