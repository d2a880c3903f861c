"""Hello: who are you? And, when a profile is taken, the last words of a worker."""

from dataclasses import asdict, dataclass

from flwr.app import ConfigRecord, Message, RecordDict

from fedge.exchange.content import CONFIG, config_of

HELLO = "query.hello"
END_CAPTURE = "query.end_capture"


@dataclass(frozen=True)
class Hello:
    """A client's answer to the first call.

    Attributes:
        partition_id: the partition that it holds.
        num_partitions: of how many.
        shares: whether it sees the server's folder of state files.
    """

    partition_id: int
    num_partitions: int
    shares: bool = False


def hello_message(node_id: int, probe: str = "") -> Message:
    """Ask a node who it is, and whether it sees the file `probe`."""
    return Message(RecordDict({CONFIG: ConfigRecord({"probe": probe})}), node_id, HELLO)


def probe_of(message: Message) -> str:
    """Return the path of the file that a hello asks about; empty for none."""
    return str(config_of(message)["probe"])


def hello_reply(hello: Hello, message: Message) -> Message:
    """Answer a hello."""
    return Message(RecordDict({CONFIG: ConfigRecord(asdict(hello))}), reply_to=message)


def read_hello(reply: Message) -> Hello:
    """Read a client's answer to hello."""
    record = config_of(reply)
    partition_id, num_partitions = int(record["partition_id"]), int(record["num_partitions"])  # type: ignore[arg-type]
    return Hello(partition_id, num_partitions, bool(record["shares"]))


def end_capture_message(node_id: int) -> Message:
    """Ask the worker that gets it to end its capture of memory (`fedge.profile`)."""
    return Message(RecordDict(), node_id, END_CAPTURE)


def end_capture_reply(pid: int, message: Message) -> Message:
    """Answer it with the worker's process id."""
    return Message(RecordDict({CONFIG: ConfigRecord({"pid": pid})}), reply_to=message)


def read_end_capture(reply: Message) -> int:
    """Return the process id of a worker that has ended its capture."""
    return int(config_of(reply)["pid"])  # type: ignore[arg-type]
