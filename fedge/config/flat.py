"""The flat mapping in which Flower hands an app its options, ``{"train.lr": 0.05, ...}``, and back.

`from_run_config` is the only reader of its keys. It turns them into frozen dataclasses, one per concern, and
refuses errors: an unknown key (the nearest known one is named), a wrong type, a value out of
range, a contradiction. Field names are the keys with ``_`` for ``-``.
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
    """Every key with its default and its declaration, in the order of the classes."""
    table: dict[str, tuple[Scalar, Mapping[str, Any]]] = {}
    classes: dict[str, Any] = {"": Config, **SECTIONS}
    for section, kind in classes.items():
        for declared in fields(kind):
            if declared.metadata:
                table[key_of(section, declared.name)] = (cast(Scalar, declared.default), declared.metadata)
    return MappingProxyType(table)


def check_keys(keys: list[str]) -> None:
    """Raise ConfigError for the first key that no option has, and that lies in no table of arguments."""
    known = list(options())
    for key in keys:
        if key in _GONE:
            raise ConfigError(f"{key} is no configuration key any more, because {_GONE[key]}; leave it out")
        if key not in known and _table_of(key) is None:
            raise ConfigError(
                f"{key} is not a configuration key"
                f"{_longer(key, known) or _named(key) or _argument(key) or nearest(key, known) or _ALL}"
            )


def _longer(key: str, known: list[str]) -> str:
    """Words on the first key that begins as one does, as cluster.regroup-every for cluster.regroup, or "".

    One that ends with a whole word only: what is one letter short is looked for by likeness.
    """
    found = next((name for name in known if name.startswith((f"{key}-", f"{key}."))), None)
    return f"; did you mean {found}?" if found else ""


def _named(key: str) -> str:
    """Words on the option that a key means by another name, as train.epochs for train.local-epochs, or ""."""
    dashed = key.replace("_", "-")
    section, _, name = dashed.rpartition(".")
    begin, end = f"{section}.", f"-{name}"
    ends = [known for known in options() if section and known.startswith(begin) and known.endswith(end)]
    if dashed in options():
        meant: str | None = dashed
    else:
        meant = ends[0] if ends else _also(name) if section else option_meant(name)
    return f"; did you mean {meant}?" if meant else ""


def _also(word: str) -> str | None:
    """The option with another name in the field, or None."""
    return next((key for key, (_, rule) in options().items() if word in rule["also"]), None)


def option_meant(word: str) -> str | None:
    """The option that a word means, by its name, a part of it ("lr" is train.lr) or another name; or None.

    Of several, the most used option comes first, then one that ends with the word or belongs to no section.
    """
    word = word.replace("_", "-").lower()
    if word in options():
        return word
    for meant in (f"{word}s", word):  # --round means --rounds
        named = [key for key in options() if f"-{meant}-" in f"-{key.replace('.', '-')}-"]
        named.sort(key=lambda key: (key not in MOST_USED, not key.endswith(meant), "." in key))
        if named and (meant == word or named[0] in MOST_USED):
            return named[0]
    return _also(word)


def _argument(key: str) -> str:
    """Words on the first argument of a part that has a key's section and name, as cluster.split-round, or "".

    Or whose name begins with the key's, as `alpha-leaves` for partition.alpha.
    """
    section, _, name = key.rpartition(".")
    for option, (_, rule) in options().items():
        parts = rule["register"] or () if option.rpartition(".")[0] == section else ()
        words = [word.replace("_", "-") for entry in parts for word in entry.arguments]
        found = name if name in words else next((word for word in words if word.startswith(f"{name}-")), "")
        if found:
            return f"; did you mean {option}-args.{found}?"
    return ""


_ALL = "; fedge options lists all of them"
_GONE = {"cluster.test": "the deal test alone tells groups from chance (docs/clustering.md)"}
"""Key that was an option once → why it is none."""


def _table_of(key: str) -> str | None:
    """The table of arguments that a key lies in: "train.model-args" for "train.model-args.x"."""
    return next((table for table in _TABLES if key.startswith(f"{table}.")), None)


_TABLES = tuple(key for key, (_, rule) in options().items() if rule["table"])

_LISTS = tuple(key for key, (_, rule) in options().items() if rule["many"])


def fold_tables(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """A flat mapping in which every table of keyword arguments is one entry, as JSON text.

    ``{"train.model-args.width": 64}`` → ``{"train.model-args": '{"width": 64}'}``. Flower takes no keys that
    pyproject.toml does not list, and no lists, so a list of names becomes one text.

    Raises:
        ConfigError: a table is not one.
    """
    folded = {key: _listed(key, value) for key, value in run_config.items() if _table_of(key) is None}
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
                        f"{key} must be in a table, but {word} is {shown(inner)}; leave out one"
                    )
            inner[last] = value
            folded[table] = _as_json(arguments, key, value)
    return folded


def _as_json(arguments: Mapping[str, Any], key: str, value: Any) -> str:
    """A table of keyword arguments as JSON text.

    Raises:
        ConfigError: `value`, the last that was added, under `key`, has no such text.
    """
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(
            f"{key} must be text, a number, true or false, or a list or table of these, but is "
            f"{shown(value)}; give it as one"
        ) from None


def _listed(key: str, value: Any) -> Any:
    """A list of names as the text that Flower takes, ``["a", "b"]`` → "a,b"; all else as it is."""
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
        **_values(run_config, "", Config),
        **{name: cast(Any, kind)(**_values(run_config, name, kind)) for name, kind in SECTIONS.items()},
    )


_SectionT = TypeVar("_SectionT", bound=Section)


def _values(run_config: Mapping[str, Any], section: str, kind: type[_SectionT]) -> dict[str, Any]:
    """The given values of one section by field name."""
    named = {f.name: key_of(section, f.name) for f in fields(kind) if f.metadata}  # type: ignore[arg-type]
    return {name: run_config[key] for name, key in named.items() if key in run_config}


def to_run_config(config: Config) -> dict[str, Scalar]:
    """`config` as Flower's flat mapping; `from_run_config` of it is equal to `config`."""
    flat: dict[str, Scalar] = {}
    for section, holder in [("", config), *((name, getattr(config, name)) for name in SECTIONS)]:
        for declared in fields(holder):
            if declared.metadata:
                flat[key_of(section, declared.name)] = getattr(holder, declared.name)
    return flat
