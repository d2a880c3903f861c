"""Hello: a node's first answer. And, when a profile is taken, the last words of a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict

from fedge.config.registers.option import ConfigError, shown
from fedge.data.own import WindowsReport
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
    """A client's answer to the first call.

    Attributes:
        partition_id: its partition.
        num_partitions: of how many.
        seen: its answer to the server's challenge, the proof of access to the server's folder of state files;
            empty without access.
        told: description of its windows, where its node names its own; None where the server has them.
        device: of its computation: "cpu", or the name of a GPU; empty where unknown.
        kernels: of the native step usable by its process, best first; None where nobody has asked.
    """

    partition_id: int
    num_partitions: int
    seen: str = ""
    told: WindowsReport | None = None
    device: str = CPU
    kernels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Question:
    """Question to every node at its first call: which partition it holds.

    Attributes:
        challenge: answerable by every reader of the server's state files.
        seed: of the run.
        options: of the run, as JSON, where nodes have others (`fedge.exchange.content.options_of`).
        code: folders with code of the user's, where nodes are workers of this run's.
        parts: option → SHA-256 of the server's code of a part of the user's own.
    """

    challenge: str = ""
    seed: int = 0
    options: str = ""
    code: Sequence[str] = ()
    parts: Mapping[str, str] = field(default_factory=dict)


PLAIN = Question()


def hello_message(node_id: int, question: Question = PLAIN) -> Message:
    """Ask a node its first question."""
    asked = ConfigRecord(
        {
            "challenge": question.challenge,
            "seed": question.seed,
            OPTIONS: question.options,
            _CODE: list(question.code),
            _PARTS: list(question.parts),
            _SHA256: list(question.parts.values()),
        }
    )
    return Message(RecordDict({CONFIG: asked}), node_id, HELLO)


def question_of(message: Message) -> Question:
    """The question of a hello, as `hello_message` has put it."""
    config = config_of(message)
    code, parts, sha256 = (_listed(config.get(name)) for name in (_CODE, _PARTS, _SHA256))
    seed = int(config["seed"])  # type: ignore[arg-type]
    options = str(config.get(OPTIONS, ""))
    return Question(str(config["challenge"]), seed, options, code, dict(zip(parts, sha256, strict=False)))


def _listed(values: object) -> list[str]:
    """Texts of a list; none of anything else."""
    return [str(value) for value in values] if isinstance(values, list) else []


def hello_reply(hello: Hello, message: Message) -> Message:
    """Answer a hello."""
    told = {name: getattr(hello, name) for name in ("partition_id", "num_partitions", "seen")}
    if hello.told is not None:
        told["told"] = hello.told.to_text()
    if hello.device != CPU:
        told["device"] = hello.device
    if hello.kernels is not None:
        told["kernels"] = " ".join(hello.kernels)
    return Message(RecordDict({CONFIG: ConfigRecord(marked_values(told, LEAVING))}), reply_to=message)


def read_hello(reply: Message) -> Hello:
    """Read a client's answer to hello.

    Raises:
        Exception: invalid; a client can put anything into a message.
    """
    record = config_of(reply)
    partition_id, num_partitions = record["partition_id"], record["num_partitions"]
    if type(partition_id) is not int or type(num_partitions) is not int:
        raise TypeError("partition_id and num_partitions must be whole numbers")
    if not 0 <= partition_id < num_partitions <= _MOST_PARTITIONS:
        raise ValueError(f"partition {shown(partition_id)} of {shown(num_partitions)}")
    told = WindowsReport.of_text(str(record["told"])) if "told" in record else None
    device = printable(str(record.get("device", CPU))[:_LONGEST])
    kernels = tuple(printable(str(record["kernels"])[:_LONGEST]).split()) if "kernels" in record else None
    return Hello(partition_id, num_partitions, str(record["seen"])[:_LONGEST], told, device, kernels)


def expect_windows(message: Message, fingerprint: str) -> None:
    """Let a question say which windows its client told of: a restarted node may have others.

    Its content becomes one of its own: questions to the clients of a leaf may share one.
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
    """Ask the receiving worker to end its capture of memory (`fedge.profile`)."""
    return Message(RecordDict(), node_id, END_CAPTURE)


def end_capture_reply(pid: int, message: Message) -> Message:
    """Answer with the worker's process id."""
    return Message(RecordDict({CONFIG: ConfigRecord(marked_values({"pid": pid}, LEAVING))}), reply_to=message)


def read_end_capture(reply: Message) -> int:
    """The process id of a worker with an ended capture."""
    return int(config_of(reply)["pid"])  # type: ignore[arg-type]
