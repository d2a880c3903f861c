"""Declaration and check of one option, and the error for a wrong value.

A section of the configuration is a frozen dataclass of options derived from `Section`, which checks every
value on construction. The sections are in `fedge.config.sections`.
"""

import difflib
import json
import math
import operator
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Protocol

Scalar = bool | int | float | str
KEYWORDS = "its keyword arguments"  # a table of arguments, relative to the option choosing the part


class ConfigError(ValueError):
    """A configuration that cannot run; its message is one line: name, rule, value, next step."""

    def __init__(self, message: str) -> None:
        """Escape line breaks and control characters, and cut the middle out of a long text."""
        if len(message) > _LONGEST_READ:  # the next step is at the end
            message = message[:_LONGEST] + message[-_LONGEST:]
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
        super().__init__(line if len(line) <= _LONGEST else f"{line[:400]} … {line[-400:]}")

    def _render_traceback_(self) -> list[str]:
        """The message alone for Jupyter: a traceback into Fedge's code would not help."""
        return [f"{type(self).__name__}: {self}"]


_LONGEST, _LONGEST_READ = 810, 100_000


def shown(value: Any) -> str:
    """Short representation of any value for an error message."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an object's own repr may fail; so does a whole number of thousands of digits
        return f"{type(value).__name__} that cannot be shown"
    return text if len(text) <= 200 else f"{text[:100]} … {text[-100:]}"


def option(
    default: Scalar,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
    kind: type | None = None,
    register: "PartNames | None" = None,
    table: bool = False,
    many: bool = False,
    also: tuple[str, ...] = (),
) -> Any:
    """Declare one option: its default (which fixes its type), meaning with unit, and allowed values.

    Args:
        default: value when the key is absent.
        doc: effect, with the unit.
        minimum: smallest allowed value, inclusive.
        maximum: largest allowed value, inclusive.
        above: exclusive lower bound.
        choices: the allowed strings; empty means any.
        words: strings allowed beside values of the option's own type.
        kind: type of the option, if the default is one of `words`.
        register: register of the allowed parts; names of users' parts are allowed as well.
        table: the value is a table of keyword arguments, as JSON text; "" is an empty table.
        many: the value is any number of the register's parts, separated by commas; "" means none.
        also: other names in the field; an error about such a name points to this option.
    """
    bounds = {"minimum": minimum, "maximum": maximum, "above": above}
    if register is not None:
        choices = register.names
    allowed = {**bounds, "choices": choices, "words": words, "register": register}
    of_kind = {"kind": kind or type(default), "table": table, "many": many}
    return field(default=default, metadata={"doc": doc, "also": also, **allowed, **of_kind})


class PartNames(Protocol):
    """Interface of `fedge.config.registers.register.Register` needed here."""

    @property
    def names(self) -> tuple[str, ...]:
        """Built-in parts."""

    def entry(self, name: str, default_hint: str) -> Any:
        """The part of a name; the ConfigError for an unknown name ends by naming the default."""

    def arguments(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of a part: the given ones, checked, and defaults for the others."""


def key_of(section: str, name: str) -> str:
    """The run-config key of a field: ``("train", "batch_size")`` → ``"train.batch-size"``."""
    dashed = name.replace("_", "-")
    return f"{section}.{dashed}" if section else dashed


class Section:
    """A section of the configuration, checked on construction against the options' declarations.

    Attributes:
        SECTION: prefix of its keys, before the dot; empty for keys without one.
    """

    SECTION = ""

    def __post_init__(self) -> None:
        """Raise ConfigError for the first value not allowed by its option."""
        for declared in fields(self):  # type: ignore[arg-type]
            if declared.metadata:
                key = key_of(self.SECTION, declared.name)
                value = checked_value(key, getattr(self, declared.name), declared.default, declared.metadata)
                object.__setattr__(self, declared.name, value)
        for declared in fields(self):  # type: ignore[arg-type]
            if declared.metadata.get("register") and hasattr(self, f"{declared.name}_args"):
                self.arguments(declared.name)

    def arguments(self, name: str) -> dict[str, Any]:
        """Keyword arguments for the part named by an option: ``train.arguments("model")``.

        Arguments declared by Fedge's parts get their defaults if not given.

        Args:
            name: of the option's field.

        Raises:
            ConfigError: a value is not allowed by the argument's declaration.
        """
        given = arguments_of(getattr(self, f"{name}_args"), key_of(self.SECTION, f"{name}-args"))
        (rule,) = (declared.metadata for declared in fields(self) if declared.name == name)  # type: ignore[arg-type]
        if rule["register"] is None or rule["many"]:
            return given
        merged: dict[str, Any] = rule["register"].arguments(getattr(self, name), given)
        return merged


def checked_value(key: str, value: Any, default: Any, rule: Mapping[str, Any]) -> Any:
    """A value converted to its option's type.

    Args:
        key: key of the option, for messages.
        value: the given value.
        default: the option's default.
        rule: metadata of the option's declaration.

    Raises:
        ConfigError: the value is not allowed.
    """
    kind = rule["kind"]
    if type(value) is str and value in rule["words"]:
        return value
    if kind is float and type(value) is int:
        value = float(value) if abs(value) <= sys.float_info.max else math.inf
    if type(value) is not kind:
        raise ConfigError(
            f"{key} must be {' or '.join([_KIND_NAMES[kind], *map(_toml, rule['words'])])}, "
            f"but is {shown(value)}; {_step_to_type(key, value, default, rule)}"
        )
    if kind is float and not math.isfinite(value):
        raise ConfigError(f"{key} must be a finite number, but is {shown(value)}; its default is {default!r}")
    if kind is int and abs(value) > _LARGEST_INT:
        raise ConfigError(
            f"{key} must be at most {_LARGEST_INT} in size, but is {shown(value)}; its default is {default!r}"
        )
    if rule["table"]:
        return json.dumps(arguments_of(value, key), ensure_ascii=False) if value else ""
    if rule["register"] is not None:
        for name in map(str.strip, value.split(",")) if rule["many"] else [value]:
            if name or not rule["many"]:
                rule["register"].entry(name, f"its default is {default!r}")
    elif rule["choices"] and value not in rule["choices"]:
        raise ConfigError(
            f"{key} must be one of {', '.join(rule['choices'])}, but is {shown(value)}"
            f"{nearest(value, rule['choices']) or f'; its default is {default!r}'}"
        )
    for bound, holds, words in _BOUNDS:
        limit = rule[bound]
        if limit is not None and not holds(value, limit):
            raise ConfigError(f"{key} must be {words} {limit}, but is {value!r}; its default is {default!r}")
    return value


_BOUNDS = (
    ("minimum", operator.ge, "at least"),
    ("maximum", operator.le, "at most"),
    ("above", operator.gt, "above"),
)


def _step_to_type(key: str, value: Any, default: Any, rule: Mapping[str, Any]) -> str:
    """Next step for a value of the wrong type."""
    if rule["register"] is not None and callable(value):
        name = getattr(value, "__name__", type(value).__name__)
        return (
            f'name it, as "module:{name}" of a file, or pass it as an argument of fedge.simulate '
            f"that takes objects; docs/extend.md"
        )
    can_be_text = rule["kind"] is str and not (rule["register"] or rule["choices"])
    if can_be_text and type(value) in (int, float) and abs(value) < 1e9:  # without its quotes
        return f"set for example {key}={_toml(str(value))}"
    return f"set for example {key}={_toml(default)}"


def refuse_duplicate_arguments(table: str, arguments: Mapping[str, Any], set_by: Mapping[str, str]) -> None:
    """Raise ConfigError for an argument also set by an option: one value would silently win.

    Args:
        table: key of the table of arguments.
        arguments: the given arguments, by keyword.
        set_by: argument → the option for it.
    """
    for word in sorted(set_by.keys() & arguments.keys()):
        value = arguments[word]
        raise ConfigError(
            f"{table}.{word.replace('_', '-')} must be left out, because {set_by[word]} says it, but is "
            f"{shown(value)}; set {set_by[word]}={shown(value)} instead"
        )


def arguments_of(text: str, key: str) -> dict[str, Any]:
    """Parse a table of keyword arguments from JSON text; "" is an empty table.

    Raises:
        ConfigError: the text is not a table.
    """
    try:
        table = json.loads(text) if text else {}
    except (ValueError, RecursionError):  # tables nested too deeply
        table = None
    if not isinstance(table, dict):
        raise ConfigError(
            f"{key} must be a table of keyword arguments, but is {shown(text)}; "
            f"set for example {key}.width=64"
        )
    return table


_LARGEST_INT = 2**63 - 1  # TOML's own
_KIND_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: 'a string in "quotes"'}


def _toml(value: Scalar) -> str:
    """`value` written as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


ALIKE = 0.6  # of two names; "help" does not mean "deal"


def nearest(word: str, known: Sequence[str]) -> str:
    """``"; did you mean X?"`` for the known word nearest to `word`, or nothing if none is near."""
    matches = difflib.get_close_matches(word, known, n=1, cutoff=ALIKE)
    if not matches:  # the misspelt half may be the section or the key
        same_ending = [k for k in known if k.split(".")[-1] == word.split(".")[-1]]
        matches = same_ending[:1]
    return f"; did you mean {matches[0]}?" if matches else ""
