"""Conversion between Flower's flat run config, ``{"train.lr": 0.05, ...}``, and `Config`.

`from_run_config` is the only reader of the keys. It builds one frozen dataclass per section and refuses
unknown keys (naming the nearest known one), wrong types, values out of range and contradictions. Field names
are the keys with ``_`` for ``-``.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

from fedge.config.config import SECTIONS, Config
from fedge.config.registers.option import ConfigError, Scalar, Section, arguments_of, key_of, nearest, shown

MOST_USED = (
    "num-server-rounds", "clients", "seed", "run-name", "data.path", "scenario", "hierarchy.num-servers",
    "hierarchy.leaf-rounds", "partition.kind", "partition.unseen-clients", "train.model", "train.lr",
    "train.local-epochs", "scaffold.enabled", "cluster.enabled", "cluster.method", "cluster.count",
    "cluster.tau", "gate.enabled", "tracker",
)  # fmt: skip


@cache
def options() -> Mapping[str, tuple[Scalar, Mapping[str, Any]]]:
    """Key → (default, declaration) of every option, in order of declaration."""
    table: dict[str, tuple[Scalar, Mapping[str, Any]]] = {}
    classes: dict[str, Any] = {"": Config, **SECTIONS}
    for section, kind in classes.items():
        for declared in fields(kind):
            if declared.metadata:
                table[key_of(section, declared.name)] = (cast(Scalar, declared.default), declared.metadata)
    return MappingProxyType(table)


def value_of(run_config: Mapping[str, Any], key: str) -> Any:
    """Value of an option in a flat run config, which may leave it to its default."""
    return run_config.get(key, options()[key][0])


def check_keys(keys: list[str]) -> None:
    """Raise ConfigError for the first key neither an option nor inside a table of arguments."""
    known = list(options())
    for key in keys:
        if key in _REMOVED:
            raise ConfigError(
                f"{key} is no longer a configuration key, because {_REMOVED[key]}; leave it out"
            )
        if key not in known and _table_of(key) is None:
            hint = _suggest_longer_key(key, known) or _suggest_option(key) or _suggest_argument(key)
            raise ConfigError(f"{key} is not a configuration key{hint or nearest(key, known) or _LIST_ALL}")


def _suggest_longer_key(key: str, known: list[str]) -> str:
    """Hint to the first key continuing this one, as cluster.regroup-every for cluster.regroup; else "".

    Only if this one ends with a whole word; `nearest` finds keys a letter short.
    """
    match = next((option for option in known if option.startswith((f"{key}-", f"{key}."))), None)
    return f"; did you mean {match}?" if match else ""


def _suggest_option(key: str) -> str:
    """Hint to the option with this other name, as train.local-epochs for train.epochs; else ""."""
    dashed = key.replace("_", "-")
    section, _, name = dashed.rpartition(".")
    prefix, suffix = f"{section}.", f"-{name}"
    matches = [
        option for option in options() if section and option.startswith(prefix) and option.endswith(suffix)
    ]
    if dashed in options():
        suggestion: str | None = dashed
    else:
        suggestion = matches[0] if matches else _option_also_named(name) if section else option_meant(name)
    return f"; did you mean {suggestion}?" if suggestion else ""


def _option_also_named(word: str) -> str | None:
    """The option also known by this name in the field, or None."""
    return next((key for key, (_, rule) in options().items() if word in rule["also"]), None)


def option_meant(word: str) -> str | None:
    """The option meant by a word: its key, a part of it ("lr" for train.lr) or another name; None if none.

    Among several matches, the most used options win, then those ending with the word or without a section.
    """
    word = word.replace("_", "-").lower()
    if word in options():
        return word
    for variant in (f"{word}s", word):  # --round means --rounds
        matches = [key for key in options() if f"-{variant}-" in f"-{key.replace('.', '-')}-"]
        matches.sort(key=lambda key: (key not in MOST_USED, not key.endswith(variant), "." in key))
        if matches and (variant == word or matches[0] in MOST_USED):
            return matches[0]
    return _option_also_named(word)


def _suggest_argument(key: str) -> str:
    """Hint to a part's argument with the key's section and name, as for cluster.split-round; else "".

    The argument's name may continue the key's, as `alpha-leaves` for partition.alpha.
    """
    section, _, name = key.rpartition(".")
    for option, (_, rule) in options().items():
        parts = rule["register"] or () if option.rpartition(".")[0] == section else ()
        words = [word.replace("_", "-") for entry in parts for word in entry.arguments]
        match = name if name in words else next((word for word in words if word.startswith(f"{name}-")), "")
        if match:
            return f"; did you mean {option}-args.{match}?"
    return ""


_LIST_ALL = "; fedge options lists all of them"
_REMOVED = {"cluster.test": "the deal test alone tells groups from chance (docs/clustering.md)"}
"""Key that was an option once → why it is none."""


def _table_of(key: str) -> str | None:
    """The table of arguments containing a key: "train.model-args" for "train.model-args.x"."""
    return next((table for table in _TABLES if key.startswith(f"{table}.")), None)


_TABLES = tuple(key for key, (_, rule) in options().items() if rule["table"])

_LISTS = tuple(key for key, (_, rule) in options().items() if rule["many"])


def fold_tables(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Fold each table of keyword arguments into one entry of JSON text.

    ``{"train.model-args.width": 64}`` → ``{"train.model-args": '{"width": 64}'}``, because Flower accepts
    only the keys in pyproject.toml. Flower accepts no lists, either, so a list of names becomes one string.

    Raises:
        ConfigError: the value of a table of arguments is no table.
    """
    folded = {key: _join_names(key, value) for key, value in run_config.items() if _table_of(key) is None}
    for key, value in run_config.items():
        table = _table_of(key)
        if table is not None:
            text = folded.get(table, "")
            arguments = arguments_of(text if isinstance(text, str) else json.dumps(text), table)
            inner = arguments
            *outer, last = key.removeprefix(f"{table}.").split(".")
            for word in outer:
                inner = inner.setdefault(word, {})
                if not isinstance(inner, dict):
                    raise ConfigError(
                        f"{key} must be in a table, but {word} is {shown(inner)}; remove one of them"
                    )
            inner[last] = value
            folded[table] = _as_json(arguments, key, value)
    return folded


def _as_json(arguments: Mapping[str, Any], key: str, value: Any) -> str:
    """A table of keyword arguments as JSON text.

    Raises:
        ConfigError: `value`, added last under `key`, cannot be written as JSON.
    """
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(
            f"{key} must be text, a number, true or false, or a list or table of these, but is "
            f"{shown(value)}; give it as one"
        ) from None


def _join_names(key: str, value: Any) -> Any:
    """A list of names as one string for Flower, ``["a", "b"]`` → "a,b"; other values unchanged."""
    is_list = key in _LISTS and isinstance(value, list) and all(type(name) is str for name in value)
    return ",".join(value) if is_list else value


def from_run_config(run_config: Mapping[str, Any]) -> Config:
    """Build the configuration of a run from Flower's flat mapping; absent keys take their defaults.

    Raises:
        ConfigError: an unknown key, a wrong type, a value out of range, or a contradiction.
    """
    check_keys(list(run_config))
    run_config = fold_tables(run_config)
    return Config(
        **_section_values(run_config, "", Config),
        **{
            name: cast(Any, kind)(**_section_values(run_config, name, kind))
            for name, kind in SECTIONS.items()
        },
    )


_SectionT = TypeVar("_SectionT", bound=Section)


def _section_values(run_config: Mapping[str, Any], section: str, kind: type[_SectionT]) -> dict[str, Any]:
    """The given values of one section by field name."""
    keys = {f.name: key_of(section, f.name) for f in fields(kind) if f.metadata}  # type: ignore[arg-type]
    return {name: run_config[key] for name, key in keys.items() if key in run_config}


def to_run_config(config: Config) -> dict[str, Scalar]:
    """`config` as Flower's flat mapping; the inverse of `from_run_config`."""
    flat: dict[str, Scalar] = {}
    for section, holder in [("", config), *((name, getattr(config, name)) for name in SECTIONS)]:
        for declared in fields(holder):
            if declared.metadata:
                flat[key_of(section, declared.name)] = getattr(holder, declared.name)
    return flat
