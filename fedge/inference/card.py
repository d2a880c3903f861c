"""Card of a file of models: everything needed to use them without their run, stored in the file's header.

A safetensors header may hold texts by name (``__metadata__``); the card is the one named "fedge", as JSON.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedge.config.registers.option import ConfigError, shown
from fedge.states.files import StateFileError, map_state

KEY = "fedge"
_FORMAT = 1
CLASS, CLASSES, NUMBERS = SAYS = ("class", "classes", "numbers")


@dataclass(frozen=True)
class Served:
    """Clients served by one stored model.

    Attributes:
        leaf: number of the leaf.
        clients: served by it, unseen clients included.
        unseen: served to clients outside training.
        train_windows: number of training windows of the leaf's clients.
    """

    leaf: int
    clients: tuple[int, ...]
    unseen: bool
    train_windows: int


@dataclass(frozen=True)
class Card:
    """Facts needed to use models.

    Attributes:
        fedge: version of Fedge that trained the models.
        model: name of the network, as in `train.model`.
        arguments: of the network, by keyword.
        code: package, version and sha256 of a user's network; empty for Fedge's.
        input_shape: shape of one window (C, T) or image (C, H, W), row (C,) or other input.
        dtype: of raw windows: "float32", or "uint8", brightness 0..255, which is divided by 255, or "int64".
        channels: their names, in order.
        classes: their names, in the order of the logits; names of outputs if answers are numbers.
        mean, std: of each channel of the training windows, by which they are scaled; empty without scaling.
        about: rate and units of the data, if known.
        served: stored model ("leaf-0", "unseen-0") → the clients it serves.
        says: kind of answer: "class", one of the classes, of a position where `answer` has several;
            "classes", any of them; "numbers", one per name in `classes`.
        answer: shape of an answer to one window; None: (classes,).
    """

    fedge: str
    model: str
    arguments: Mapping[str, Any]
    code: Mapping[str, str]
    input_shape: tuple[int, ...]
    dtype: str
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    served: Mapping[str, Served] = field(default_factory=dict)
    says: str = CLASS
    answer: tuple[int, ...] | None = None

    def metadata(self) -> dict[str, str]:
        """Entries for a safetensors header."""
        entries = asdict(self)
        if self.says == CLASS and self.answer in (None, (len(self.classes),)):
            del entries["says"], entries["answer"]  # as in files of before there were other answers
        return {KEY: json.dumps({"format": _FORMAT, **entries}, ensure_ascii=False)}


def read_card(path: Path) -> Card:
    """Card of a file of models.

    Raises:
        ConfigError: not such a file, or without a card.
    """
    try:
        text = map_state(path).metadata.get(KEY)
    except StateFileError as error:
        raise ConfigError(f"{error}; repeat the run") from error
    if text is None:
        raise ConfigError(
            f"{path} must say what its models are, but says nothing: an earlier Fedge wrote it; "
            f"repeat the run "
            f"with this one"
        )
    try:
        return _parse_card(json.loads(text))
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, _CardError) else "it is no JSON"
        raise ConfigError(
            f"{path} must say what its models are as this Fedge does, but {reason}; use the version "
            f"that wrote it"
        ) from error


# --- a card is untrusted: every entry is checked here, and nowhere else ---------------------------------

_LONGEST_TEXT = 10_000  # characters
_MOST_CELLS, _MOST_CLASSES, _MOST_WEIGHTS, _MOST_CLIENTS = 2**26, 2**16, 2**32, 2**24
_MOST_AXES = 8
_DTYPES = ("float32", "uint8", "int64")
_LARGEST = float(np.finfo(np.float32).max)


class _CardError(ValueError):
    """Error: an entry of a card has a wrong value; the message names it."""


def _parse_card(entries: Any) -> Card:
    """The card in a JSON value.

    Raises:
        _CardError: without a card.
    """
    if not isinstance(entries, dict):
        raise _CardError(f"it is a {type(entries).__name__}")
    if type(entries.get("format")) is not int or entries["format"] != _FORMAT:
        raise _CardError(f"format is {shown(entries.get('format'))}, not {_FORMAT}")
    shape = _whole_numbers(entries, "input_shape", 1, _MOST_CELLS)
    is_tokens = entries.get("dtype") == "int64"
    if not 1 <= len(shape) <= _MOST_AXES or math.prod(shape) > _MOST_CELLS:
        raise _CardError(f"input_shape is {shown(list(shape))}")
    classes, channels = _texts(entries, "classes"), _texts(entries, "channels")
    mean, std = _numbers(entries, "mean"), _numbers(entries, "std")
    if not 1 <= len(classes) <= _MOST_CLASSES or math.prod(shape) * len(classes) > _MOST_WEIGHTS:
        raise _CardError(f"there are {len(classes)} classes of windows {shape}")
    if len(channels) != (0 if is_tokens else shape[0]):
        raise _CardError(f"there are {len(channels)} names for {0 if is_tokens else shape[0]} channels")
    if len(mean) != len(std) or len(mean) not in (0, len(channels)) or not all(scale > 0 for scale in std):
        raise _CardError("mean and std are not one positive scale per channel")
    if entries.get("dtype") not in _DTYPES:
        raise _CardError(f"dtype is {shown(entries.get('dtype'))}")
    arguments = _table(entries, "arguments", _is_argument, "a table of numbers, texts and lists of them")
    if not all(name.isidentifier() for name in arguments):
        raise _CardError("arguments have a name that no argument can have")
    served_entries = _table(entries, "served", lambda entry: isinstance(entry, dict), "a table of tables")
    served = {name: _parse_served(name, entry) for name, entry in served_entries.items()}
    _refuse_missing(served)
    return Card(
        fedge=_text(entries, "fedge"),
        model=_text(entries, "model"),
        arguments=arguments,
        code=_table(entries, "code", _is_text, "a table of texts"),
        input_shape=shape,
        dtype=entries["dtype"],
        channels=channels,
        classes=classes,
        mean=mean,
        std=std,
        about=_table(entries, "about", _is_text, "a table of texts"),
        served=served,
        says=_output_kind(entries),
        answer=_output_shape(entries, len(classes)),
    )


def _output_kind(entries: Mapping[str, Any]) -> str:
    """Kind of the answers; "class" in older cards, which do not name it."""
    kind = entries.get("says", CLASS)
    if kind not in SAYS:
        raise _CardError(f"says is {shown(kind)}, not one of {', '.join(SAYS)}")
    return str(kind)


def _output_shape(entries: Mapping[str, Any], classes: int) -> tuple[int, ...] | None:
    """The shape of an answer; None for one number per class."""
    if entries.get("answer") is None:
        return None
    shape = _whole_numbers(entries, "answer", 1, _MOST_CELLS)
    if not shape or shape[0] != classes or math.prod(shape) > _MOST_CELLS:
        raise _CardError(f"answer is {shown(list(shape))} for {classes} classes")
    return shape


def _parse_served(name: str, entries: Mapping[str, Any]) -> Served:
    """Clients served by one stored model: "leaf-N" those of leaf N, "unseen-N" others there."""
    leaf = _whole_number(entries, "leaf", 0, _MOST_CLIENTS)
    if name not in (f"leaf-{leaf}", f"unseen-{leaf}"):
        raise _CardError(f"served has {shown(name)} of leaf {leaf}")
    if type(entries.get("unseen")) is not bool:
        raise _CardError(f"unseen is {shown(entries.get('unseen'))}")
    clients = _whole_numbers(entries, "clients", 0, _MOST_CLIENTS)
    return Served(leaf, clients, entries["unseen"], _whole_number(entries, "train_windows", 0, 2**62))


def _refuse_missing(served: Mapping[str, Served]) -> None:
    """Raise _CardError unless every leaf has a model for its clients, and one for others."""
    for entry in served.values():
        leaf_entry = served.get(f"leaf-{entry.leaf}")
        if leaf_entry is None or (not leaf_entry.unseen and f"unseen-{entry.leaf}" not in served):
            raise _CardError(f"served lacks a model of leaf {entry.leaf}")
    if not any(entry.unseen for entry in served.values()):
        raise _CardError("served has no model for clients outside training")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _is_argument(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= _LONGEST_TEXT and all(map(_is_argument, value))
    if type(value) in (int, float):
        return abs(value) <= _LARGEST
    return value is None or type(value) is bool or _is_text(value)


def _text(entries: Mapping[str, Any], key: str) -> str:
    if not _is_text(entries.get(key)) or not entries[key]:
        raise _CardError(f"{key} is {shown(entries.get(key))}, not a text")
    return str(entries[key])


def _whole_number(entries: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = entries.get(key)
    if type(value) is not int or not least <= value <= most:
        raise _CardError(f"{key} is {shown(value)}, not a whole number from {least} to {most}")
    return value


def _list(entries: Mapping[str, Any], key: str) -> list[Any]:
    if not isinstance(entries.get(key), list):
        raise _CardError(f"{key} is {shown(entries.get(key))}, not a list")
    return list(entries[key])


def _whole_numbers(entries: Mapping[str, Any], key: str, least: int, most: int) -> tuple[int, ...]:
    values = _list(entries, key)
    if not all(type(value) is int and least <= value <= most for value in values):
        raise _CardError(f"{key} is {shown(values)}, not whole numbers from {least} to {most}")
    return tuple(values)


def _numbers(entries: Mapping[str, Any], key: str) -> tuple[float, ...]:
    values = _list(entries, key)
    if not all(type(value) in (int, float) and abs(value) <= _LARGEST for value in values):
        raise _CardError(f"{key} is {shown(values)}, not finite numbers")
    return tuple(map(float, values))


def _texts(entries: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _list(entries, key)
    if not all(map(_is_text, values)):
        raise _CardError(f"{key} is {shown(values)}, not a list of texts")
    return tuple(values)


def _table(entries: Mapping[str, Any], key: str, kind: Callable[[Any], bool], words: str) -> dict[str, Any]:
    value = entries.get(key)
    if not isinstance(value, dict) or not all(map(kind, value.values())) or not all(map(_is_text, value)):
        raise _CardError(f"{key} is {shown(value)}, not {words}")
    return value
