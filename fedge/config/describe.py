"""Descriptions of all options: Markdown tables, lines for a terminal, a JSON schema for editors."""

import importlib.metadata
import json
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from fedge.config.config import SECTIONS
from fedge.config.flat import MOST_USED, options
from fedge.config.registers.option import KEYWORDS, ConfigError, Scalar, nearest, shown

_CODE = r"^[A-Za-z_][\w.]*:[A-Za-z_<][\w.<>]*$"  # "module:Name"
_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_HEADER = ("| key | default; limits | meaning |", "|---|---|---|")
_DOCUMENTED_ELSEWHERE = ("cloud.rule-args",)  # its parts are leaf.strategy's, and stand there
_OWN_CODE = ' or `"module:Name"`'  # as a choice: code of others
_BOUNDS = (("minimum", "≥"), ("above", ">"), ("maximum", "≤"))


def option_table() -> str:
    """Markdown tables of all options, one per section: key, default and allowed values, meaning.

    A table of keyword arguments shares the row of the option choosing the part; each declared argument gets a
    row below it.
    """
    lines: list[str] = []
    for section, keys in groupby(options(), lambda key: key.rpartition(".")[0]):
        description = _first_line(SECTIONS[section]) if section else "Options of the run as a whole."
        lines += ["", f"## {section or 'Run'}", "", description, "", *_HEADER]
        for key in keys:
            default, rule = options()[key]
            if rule["doc"] != KEYWORDS:
                table = options().get(f"{key}-args")
                label = f"`{key}`, `{key}-args`" if table and table[1]["doc"] == KEYWORDS else f"`{key}`"
                lines.append(f"| {label} | {_default_and_allowed(default, rule)} | {rule['doc']} |")
            lines += [
                f"| `{key}.{word}` | {_default_and_allowed(value, declared)} | "
                f"{', '.join(names)}: {declared['doc']} |"
                for word, names, value, declared in _arguments(key)
            ]
    return "\n".join(lines).strip()


def _default_and_allowed(default: Scalar, rule: Mapping[str, Any]) -> str:
    """Default and allowed values of an option; a default among several choices is bold."""
    shown = f"`{json.dumps(default)}`"
    if rule["table"] or isinstance(default, bool):
        return shown
    allowed = _allowed(default, rule)
    if default in rule["choices"]:
        return allowed.replace(f"`{default}`", f"**`{default}`**", 1).replace(_OWN_CODE, ", *own*")
    words = [word for word in rule["words"] if word != default]
    limits = _limits(rule)
    if not rule["choices"]:
        allowed = " or ".join([*([limits] if limits else []), *(f"`{json.dumps(word)}`" for word in words)])
    return f"{shown}; {allowed}".replace(_OWN_CODE, ", *own*") if allowed else shown


def _arguments(key: str) -> Iterator[tuple[str, list[str], Scalar, Mapping[str, Any]]]:
    """Yield the declared arguments of a table: name, parts with it, default, declaration.

    Args:
        key: of any option; nothing is yielded unless the option is a table of arguments.
    """
    option = key.removesuffix("-args")
    register = options()[option][1]["register"] if option != key and option in options() else None
    if register is None or key in _DOCUMENTED_ELSEWHERE:
        return
    grouped: dict[tuple[str, int], tuple[list[str], Any]] = {}
    for entry in register:
        for word, rule in entry.arguments.items():
            grouped.setdefault((word, id(rule)), ([], rule))[0].append(entry.name)
    for (word, _), (names, rule) in grouped.items():
        yield word.replace("_", "-"), names, rule.default, rule.metadata


def _allowed(default: Scalar, rule: Mapping[str, Any]) -> str:
    """Short notation for the allowed values of an option."""
    if rule["table"]:
        return "a table"
    if rule["choices"]:
        own_code = _OWN_CODE if rule["register"] else ""
        return ", ".join(f"`{choice}`" for choice in rule["choices"]) + own_code
    if isinstance(default, bool):
        return "`true`, `false`"
    return " or ".join([_limits(rule) or "any", *(f"`{json.dumps(word)}`" for word in rule["words"])])


def _limits(rule: Mapping[str, Any]) -> str:
    """Bounds of a number, as "≥0, ≤1"; "" without any."""
    return ", ".join(f"{sign}{rule[name]:g}" for name, sign in _BOUNDS if rule[name] is not None)


def help_lines(width: int, most_used: bool) -> Iterator[str]:
    """Yield options with default and meaning, wrapped to `width`; all options are grouped by section.

    Args:
        width: characters per line.
        most_used: only the options set by most runs.
    """
    section = ""
    for key, (default, rule) in options().items():
        if most_used and key not in MOST_USED:
            continue
        key_section = key.rpartition(".")[0]
        if key_section != section and not most_used:
            section = key_section
            yield ""
            yield from textwrap.wrap(f"{section}: {_first_line(SECTIONS[section])}", width)
        yield from _format_with_arguments(key, default, rule, width)


def lines_on(word: str, width: int) -> list[str]:
    """Help on one option, a section, or every option whose key (or else whose meaning) contains a word.

    Args:
        word: a key such as "train.lr", a section such as "train", or a word such as "noise".
        width: characters per line.

    Raises:
        ConfigError: nothing matches.
    """
    known = options()
    searches = (
        {word, f"{word}-args"} if word in known else set(),
        {key for key in known if key.startswith(f"{word}.")},
        {key for key, (_, rule) in known.items() if word in key or word in rule["also"]},
        {key for key, (_, rule) in known.items() if word.lower() in rule["doc"].lower()},
    )
    matches = next(filter(None, searches), None)
    if matches is None:
        raise ConfigError(
            f"the word after options must be of an option, but is {shown(word)}"
            f"{nearest(word, tuple(known)) or '; fedge options prints them all'}"
        )
    return [
        line for key in known if key in matches for line in _format_with_arguments(key, *known[key], width)
    ]


def _format_with_arguments(key: str, default: Scalar, rule: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield the lines of one option and of each declared argument of its parts."""
    yield from _format_option(f"{key}={json.dumps(default)}", _meaning(default, rule), width)
    for word, names, value, declared in _arguments(key):
        meaning = f"{', '.join(names)}: {_meaning(value, declared)}"
        yield from _format_option(f"{key}.{word}={json.dumps(value)}", meaning, width)


def _first_line(section: type) -> str:
    return (section.__doc__ or "").partition("\n")[0]


def _meaning(default: Scalar, rule: Mapping[str, Any]) -> str:
    """Meaning of an option, and its allowed values."""
    if rule["choices"] or rule["words"]:
        return f"{rule['doc']} ({_allowed(default, rule).replace('`', '')})"
    limits = _limits(rule)
    return f"{rule['doc']} ({limits})" if limits else str(rule["doc"])


def _format_option(name: str, meaning: str, width: int) -> Iterator[str]:
    """Yield the lines of one option: its meaning beside its name, or below if there is no room."""
    column = 33 if width >= 72 else 6
    wrapped = textwrap.wrap(meaning, max(width - column, 20))
    fits = len(name) + 4 <= column
    yield f"  {name:<{column - 2}}{wrapped[0]}".rstrip() if fits else f"  {name}"
    for line in wrapped[fits:]:
        yield " " * column + line


def json_schema(pyproject: bool = False) -> dict[str, Any]:
    """JSON schema (draft 7) of a file of options, or of a pyproject.toml with them.

    Editors use it to check and complete options. It does not cover contradictions between options.
    """
    tables: dict[str, dict[str, Any]] = {"": {}, **{section: {} for section in SECTIONS}}
    for key, (default, rule) in options().items():
        section, _, name = key.rpartition(".")
        tables[section][name] = {
            "description": rule["doc"],
            "default": default,
            **_value_schema(default, rule),
        }
    sections = {
        section: _table_schema(properties, _first_line(SECTIONS[section]))
        for section, properties in tables.items()
        if section
    }
    schema = _table_schema({**tables[""], **sections}, "Options of a run with Fedge.")
    for name in ("config", "app", "flwr", "tool") if pyproject else ():
        schema = {"type": "object", "properties": {name: schema}}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Fedge's options", **schema}


def _table_schema(properties: Mapping[str, Any], description: str) -> dict[str, Any]:
    """Schema of a table, with no other keys allowed."""
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "additionalProperties": False,
    }


def _value_schema(default: Scalar, rule: Mapping[str, Any]) -> dict[str, Any]:
    """JSON schema of a value."""
    if rule["table"]:
        return {"type": ["object", "string"]}
    if rule["many"]:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    if rule["register"]:
        points = importlib.metadata.entry_points(group=rule["register"].group)
        names = [*rule["choices"], *sorted(points.names)]
        return {"anyOf": [{"enum": names}, {"type": "string", "pattern": _CODE}]}
    if rule["choices"]:
        return {"enum": list(rule["choices"])}
    bounds = {"minimum": "minimum", "maximum": "maximum", "above": "exclusiveMinimum"}
    limits = {word: rule[name] for name, word in bounds.items() if rule[name] is not None}
    plain = {"type": _JSON_TYPES[rule["kind"]], **limits}
    return {"anyOf": [{"enum": list(rule["words"])}, plain]} if rule["words"] else plain
