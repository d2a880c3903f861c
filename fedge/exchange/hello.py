"""Hello, the first question to a node and its reply; also the last message to a worker in a profile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict

from fedge.config.registers.option import ConfigError, shown
from fedge.data.own_windows import WindowsReport
from fedge.exchange.content import CONFIG, OPTIONS, config_of
from fedge.privacy.marks import CLASS_COUNTS, MACHINES, PLACES, SCALES, Leaving, marked_values
from fedge.process.escape import printable
from fedge.states.records import entries

HELLO = "query.hello"
END_CAPTURE = "query.end_capture"
CPU = "cpu"
_MOST_PARTITIONS = 1_000_000
_LONGEST = 100  # characters of a device's name
LEAVING: Leaving = {
    "partition_id": PLACES, "num_partitions": PLACES, "seen": MACHINES, "told": SCALES, "device": MACHINES,
    "kernels": MACHINES, "pid": MACHINES,
    "told/counts": CLASS_COUNTS,  # in the same text
}  # fmt: skip
_CODE = "code"  # entry of a hello's config
_PARTS, _SHA256 = "parts", "sha256"  # likewise
_TOLD = "told-windows"  # entry of a question's config: the client's description at the start of the run


@dataclass(frozen=True)
class Hello:
    """A client's reply to the first message.

    Attributes:
        partition_id: its partition.
        num_partitions: total number of partitions.
        seen: its reply to the server's challenge, which proves access to the server's folder of state files;
            empty without access.
        report: description of its windows, if it owns them; None if the server has them.
        device: device on which it computes, "cpu" or the name of a GPU; empty if unknown.
        kernels: kernels of the native step usable in its process, best first; None if not asked.
    """

    partition_id: int
    num_partitions: int
    seen: str = ""
    report: WindowsReport | None = None
    device: str = CPU
    kernels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Question:
    """First question to every node: which partition it holds.

    Attributes:
        challenge: can be answered only with access to the server's state files.
        seed: of the run.
        options: options of the run, as JSON, if nodes have others (`fedge.exchange.content.options_of`).
        code: folders with a user's code, if nodes are workers of this run.
        parts: option → SHA-256 of the server's code of a user's part.
    """

    challenge: str = ""
    seed: int = 0
    options: str = ""
    code: Sequence[str] = ()
    parts: Mapping[str, str] = field(default_factory=dict)


PLAIN = Question()


def hello_message(node_id: int, question: Question = PLAIN) -> Message:
    """The message with a node's first question."""
    config = ConfigRecord(
        {
            "challenge": question.challenge,
            "seed": question.seed,
            OPTIONS: question.options,
            _CODE: list(question.code),
            _PARTS: list(question.parts),
            _SHA256: list(question.parts.values()),
        }
    )
    return Message(RecordDict({CONFIG: config}), node_id, HELLO)


def question_of(message: Message) -> Question:
    """The question in a message from `hello_message`."""
    config = config_of(message)
    code, parts, sha256 = (_text_list(config.get(name)) for name in (_CODE, _PARTS, _SHA256))
    seed = int(config["seed"])  # type: ignore[arg-type]
    options = str(config.get(OPTIONS, ""))
    return Question(str(config["challenge"]), seed, options, code, dict(zip(parts, sha256, strict=False)))


def _text_list(values: object) -> list[str]:
    """The texts in a list; empty for any other value."""
    return [str(value) for value in values] if isinstance(values, list) else []


def hello_reply(hello: Hello, message: Message) -> Message:
    """The reply to a hello message."""
    values = {name: getattr(hello, name) for name in ("partition_id", "num_partitions", "seen")}
    if hello.report is not None:
        values["told"] = hello.report.to_text()
    if hello.device != CPU:
        values["device"] = hello.device
    if hello.kernels is not None:
        values["kernels"] = " ".join(hello.kernels)
    return Message(RecordDict({CONFIG: ConfigRecord(marked_values(values, LEAVING))}), reply_to=message)


def read_hello(reply: Message) -> Hello:
    """Read a client's reply to hello.

    Raises:
        Exception: the reply is malformed; a client can put anything into a message.
    """
    record = config_of(reply)
    partition_id, num_partitions = record["partition_id"], record["num_partitions"]
    if type(partition_id) is not int or type(num_partitions) is not int:
        raise TypeError("partition_id and num_partitions must be whole numbers")
    if not 0 <= partition_id < num_partitions <= _MOST_PARTITIONS:
        raise ValueError(f"partition {shown(partition_id)} of {shown(num_partitions)}")
    report = WindowsReport.of_text(str(record["told"])) if "told" in record else None
    device = printable(str(record.get("device", CPU))[:_LONGEST])
    kernels = tuple(printable(str(record["kernels"])[:_LONGEST]).split()) if "kernels" in record else None
    return Hello(partition_id, num_partitions, str(record["seen"])[:_LONGEST], report, device, kernels)


def expect_windows(message: Message, fingerprint: str) -> None:
    """Add the expected fingerprint of a client's windows to a message: a restarted node may have others.

    The message gets its own copy of the content, which messages to a leaf's clients may share.
    """
    config = ConfigRecord({**dict(config_of(message).items()), _TOLD: fingerprint})
    message.content = RecordDict({**entries(message.content), CONFIG: config})


def refuse_other_windows(message: Message, client: int, fingerprint: str) -> None:
    """Raise ConfigError if a client's own windows differ from its description."""
    if config_of(message).get(_TOLD, fingerprint) != fingerprint:
        raise ConfigError(
            f"the windows of partition {client} must be those of the start of the run, but are others; bring "
            f"them back to its machine, or start a new run"
        )


def end_capture_message(node_id: int) -> Message:
    """Message asking a worker to end its memory capture (`fedge.profile`)."""
    return Message(RecordDict(), node_id, END_CAPTURE)


def end_capture_reply(pid: int, message: Message) -> Message:
    """The reply with the worker's process id."""
    return Message(RecordDict({CONFIG: ConfigRecord(marked_values({"pid": pid}, LEAVING))}), reply_to=message)


def read_end_capture(reply: Message) -> int:
    """Process id of a worker whose capture has ended."""
    return int(config_of(reply)["pid"])  # type: ignore[arg-type]
