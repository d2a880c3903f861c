"""Records of a client's algorithm in messages: arrays of its leaf part, its memory, its own arrays.

Messages to clients contain ``beside``, the arrays of the leaf part, and ``algorithm``, the place and valid
version of the client's memory. Replies contain ``extra``, arrays beside the model, and ``kept``, the checksum
of the memory's new version.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedge.config.registers.option import shown
from fedge.exchange.content import MEMORY, arrays_of
from fedge.privacy.marks import ARRAYS_BESIDE, Quantity
from fedge.states.averaging import State
from fedge.states.files import can_hold
from fedge.states.memory import MOST_BYTES, KeptVersion
from fedge.states.named_states import form_of, words_of_form
from fedge.states.records import entries, from_record, to_record

BESIDE, TOLD = "beside", "algorithm"  # records of messages to clients
EXTRA, KEPT = "extra", "kept"  # records of replies
OWN_MODELS = (
    "algorithm"  # role of the served model where clients evaluate their algorithm's models in its place
)

Form = Mapping[str, tuple[tuple[int, ...], str]]
"""Name → shape and dtype."""


@dataclass(frozen=True)
class ReplyForm:
    """Form of the arrays sent by clients by their algorithm, from the trial before the first round.

    Attributes:
        entries: model entries in messages.
        arrays: form of the arrays beside the model.
        keeps: whether clients keep a memory.
        models: names of the models evaluated by a client beside the served one.
        unseen: whether unseen clients evaluate these, too.
        plain: whether clients follow the options alone, and keep only the unsent remainder of compression.
        within: name of an array → (least, greatest) allowed value.
        beside_models: names of arrays that are models.
        many_passes: whether a step may pass several batches through the network, as a user's algorithm may.
        leaf_sends: form of the arrays from the leaf part; None if unknown.
        own: entries of the model trained by clients and not sent; the leaf's are never trained.
    """

    entries: tuple[str, ...]
    arrays: Form = field(default_factory=dict)
    keeps: bool = False
    models: tuple[str, ...] = ()
    unseen: bool = False
    plain: bool = False
    within: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    beside_models: frozenset[str] = frozenset()
    many_passes: bool = False
    leaf_sends: Form | None = None
    own: tuple[str, ...] = ()

    def leaving(self) -> dict[str, Quantity]:
        """Quantities that leave clients beside the model, by name."""
        return dict.fromkeys(self.arrays, ARRAYS_BESIDE)

    @property
    def sent(self) -> tuple[str, ...] | None:
        """Entries of the model sent by clients; None for all."""
        return None if self.plain else self.entries

    def roles(self) -> list[str]:
        """Roles of the models evaluated by a client."""
        return [f"{OWN_MODELS}/{name}" for name in self.models]


@dataclass(frozen=True)
class MemoryPlace:
    """Place and valid version of a client's memory.

    Attributes:
        folder: folder of all clients' files; empty if clients store none there.
        run: name of the run, if clients store memories on their own machines; else empty.
        needed: leaf rounds of further versions to keep there.
        kept: the valid version; None before the first.
        keep: whether the client stores a new version.
        unseen: whether it is an unseen client.
        carried: whether messages carry the memory, because the server's files are not visible to clients.
        memory: the valid version, packed, if messages carry it.
    """

    folder: str = ""
    run: str = ""
    needed: tuple[int, ...] = ()
    kept: KeptVersion | None = None
    keep: bool = False
    unseen: bool = False
    carried: bool = False
    memory: State | None = None


def add_algorithm(
    messages: Iterable[Message],
    folder: str,
    kept: Mapping[int, KeptVersion],
    leaf_arrays: State | None = None,
    keep: bool = False,
    unseen: bool = False,
    elsewhere: tuple[str, Mapping[int, list[int]]] | None = None,
    carried: Mapping[int, State] | None = None,
) -> None:
    """Add to messages the leaf part's arrays, and the valid version of clients' memory.

    Args:
        messages: train or evaluate messages, which may share their content.
        folder: folder of the memories; empty if clients store none there.
        kept: node id → version, for nodes with one.
        leaf_arrays: arrays of the leaf part, packed; None or empty for none.
        keep: whether clients store a new version.
        unseen: whether they are unseen clients.
        elsewhere: if clients store memories on their own machines, the run's name, and node id → leaf rounds
            of versions to keep.
        carried: if messages carry memories, node id → the valid version, packed.
    """
    record = to_record(leaf_arrays) if leaf_arrays else None
    for message in messages:
        values: dict[str, Any] = {"folder": folder, "keep": keep, "unseen": unseen}
        version = kept.get(message.metadata.dst_node_id)
        if version is not None:
            values |= {
                "round": version.leaf_round,
                "checksum": version.checksum,
                "bytes": version.array_bytes,
            }
        if elsewhere is not None:
            needed = elsewhere[1].get(message.metadata.dst_node_id, [])
            values |= {"run": elsewhere[0], **({"needed": needed} if needed else {})}
        if carried is not None:
            values["carried"] = True
        added: dict[str, ArrayRecord | ConfigRecord] = {TOLD: ConfigRecord(values)}
        if carried is not None and message.metadata.dst_node_id in carried:
            added[MEMORY] = to_record(carried[message.metadata.dst_node_id])
        if record is not None:
            added[BESIDE] = record
        message.content = RecordDict({**message.content, **added})


def memory_place(message: Message) -> MemoryPlace:
    """Place of the client's memory, in a message."""
    record = entries(message.content).get(TOLD)
    if not isinstance(record, ConfigRecord):
        return _NO_PLACE
    values = entries(record)
    kept = KeptVersion(values["round"], values["checksum"], values["bytes"]) if "round" in values else None
    run, needed = str(values.get("run", "")), tuple(values.get("needed", ()))
    carried, memory = bool(values.get("carried", False)), arrays_of(message, MEMORY)
    keep, unseen = values["keep"], values["unseen"]
    return MemoryPlace(values["folder"], run, needed, kept, keep, unseen, carried, memory)


_NO_PLACE = MemoryPlace()


def leaf_part_arrays(message: Message) -> State:
    """Arrays of the leaf part in a message, packed; empty without any."""
    return arrays_of(message, BESIDE) or {}


def kept_record(kept: KeptVersion, lost: str = "") -> ConfigRecord:
    """Record of the client's stored memory, in a reply; `lost` is the reason why it started over."""
    reason = {"lost": lost} if lost else {}
    return ConfigRecord({"checksum": kept.checksum, "bytes": kept.array_bytes, **reason})


def read_lost(reply: Message) -> str:
    """The client's reason for having lost its memory before training; empty without a loss."""
    record = entries(reply.content).get(KEPT)
    lost = record.get("lost", "") if isinstance(record, ConfigRecord) else ""
    if not isinstance(lost, str):
        raise TypeError(f"why a memory was lost must be a text, but is {shown(lost)}")
    return lost


def read_extra(reply: Message) -> State:
    """Arrays beside the model in a reply, packed; empty without any."""
    record = entries(reply.content).get(EXTRA)
    if record is None:
        return {}
    if not isinstance(record, ArrayRecord):
        raise TypeError(f"{EXTRA} must be arrays, but is {type(record).__name__}")
    return {str(name): np.asarray(array) for name, array in from_record(record).items()}


def read_kept(reply: Message, leaf_round: int) -> KeptVersion | None:
    """Version of a client's memory stored in a leaf round, or None."""
    record = entries(reply.content).get(KEPT)
    if record is None:
        return None
    if not isinstance(record, ConfigRecord):
        raise TypeError(f"{KEPT} must be a checksum, but is {type(record).__name__}")
    checksum, size = record.get("checksum"), record.get("bytes")
    if not isinstance(checksum, str) or len(checksum) != 64 or not set(checksum) <= set("0123456789abcdef"):
        raise ValueError(f"the checksum of a memory must be 64 digits, but is {shown(checksum)}")
    if type(size) is not int or not 0 <= size <= MOST_BYTES:  # limit of a leaf server's cloud
        raise ValueError(f"the size of a memory must be a whole number of bytes, but is {shown(size)}")
    return KeptVersion(leaf_round, checksum, size)


def read_memory_of(reply: Message) -> State | None:
    """The new version of a client's memory for the server, packed; None without one."""
    record = entries(reply.content).get(MEMORY)
    if record is None:
        return None
    if not isinstance(record, ArrayRecord):
        raise TypeError(f"a {MEMORY} must be arrays, but is {type(record).__name__}")
    memory = arrays_of(reply, MEMORY) or {}
    for name, array in memory.items():
        if not can_hold(name, array):
            raise TypeError(f"a {MEMORY} must be of what a file can hold, but {shown(name)} is {array.dtype}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"a {MEMORY} must be finite, but {shown(name)} is not")
    return memory


def other_extra(extra: State, expected: Form) -> str:
    """Difference in form between arrays and those of the trial; "" if there is none.

    >>> other_extra({"a": np.zeros(7)}, {"a": ((3,), "<f8")})
    "'a' is float64 (7,) instead of float64 (3,)"
    """
    form = form_of(extra)
    for name in sorted(form.keys() | expected.keys()):
        if form.get(name) != expected.get(name):
            return (
                f"{name!r} is {words_of_form(form.get(name))} instead of {words_of_form(expected.get(name))}"
            )
    return ""
