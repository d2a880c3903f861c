"""A project's pyproject.toml as read by `flwr run`: run config, overrides, federations.

Used outside Flower, by the check before a run starts and by the in-process engine.
"""

import errno
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedge.config.flat import check_keys, fold_tables, options
from fedge.config.registers.option import ConfigError, Scalar, arguments_of, shown
from fedge.config.registers.register import add_search_folders
from fedge.engine.federation import Federation, from_backend
from fedge.launch.projects.moved_federations import connections, flower_config
from fedge.launch.projects.packaged import is_packaged, packaged_file, packaged_folder, packaged_like
from fedge.process.escape import printable
from fedge.records.folder import MANIFEST
from hhar.errors import HharError
from hhar.regular import open_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# ValueError covers TOMLDecodeError, undecodable bytes and numbers of thousands of digits
_NOT_TOML = (ValueError, RecursionError)

_LARGEST = 2**24  # bytes of a file of options
_STEPS = {
    errno.EACCES: "change its permissions or its folder's (chmod, chown)",
    errno.EPERM: "change its permissions or its folder's (chmod, chown)",
    errno.ELOOP: "its links lead to each other: name the file itself",
}

# Flower's own pattern: key=value pairs, where a quoted value may contain spaces.
_PAIR = re.compile(r"(\S+?)=(\'[^\']*\'|\"[^\"]*\"|\S+)")
# Words without quotes, which shells remove; numbers, true and false are left as they are.
_WORD = re.compile(r"(?!(?:true|false|inf|nan)$)[A-Za-z0-9_./~][^\s'\"=\[\]{}]*")


def read_toml(path: Path, description: str) -> dict[str, Any]:
    """A TOML file as nested tables.

    Raises:
        ConfigError: the file is missing or not TOML; the message calls it `description`.
    """
    try:
        with open_regular(path) as file:
            content = file.read(_LARGEST + 1)
    except HharError as error:
        raise ConfigError(f"{description} must be a readable file, but {error}") from error
    except ValueError as error:  # from the system, for an impossible path
        raise ConfigError(
            f"{description} must be a readable file, but {shown(str(path))}: {error}; check the path"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{description} must be a readable file, but {path}: {error.strerror or error}; "
            f"{_STEPS.get(error.errno or 0, 'check the path')}"
        ) from error
    if len(content) > _LARGEST:
        raise ConfigError(
            f"{description} must have at most {_LARGEST} bytes, but {path} has more; name a file of options"
        )
    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{description} must be TOML, but {path} is not UTF-8 from byte {error.start} on; "
            "save it as UTF-8"
        ) from error
    except _NOT_TOML as error:
        raise ConfigError(f"{description} must be TOML, but {path}: {error}; correct that line") from error


_DEEPEST = 100  # tables within tables


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """Nested tables as one flat mapping with dotted keys.

    Raises:
        ConfigError: a key is not text, or tables are nested too deeply.
    """
    flat: dict[str, Scalar] = {}
    if prefix.count(".") > _DEEPEST:
        raise ConfigError(f"options must be at most {_DEEPEST} tables deep, but {prefix} is deeper; fix it")
    for key, value in table.items():
        if not isinstance(key, str):
            raise ConfigError(f"options must be named by text, but {shown(key)} is not; write it in quotes")
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def read_config(name: str, description: str) -> dict[str, Scalar]:
    """A configuration as a flat mapping, from a TOML file or by its packaged name ("fedge:hierfl").

    Raises:
        ConfigError: the file is missing or unreadable; the message calls it `description`.
    """
    if not is_packaged(name) and (packaged := packaged_like(name)) and not os.path.lexists(name):
        raise ConfigError(
            f"{description} must be a readable file, but {name} is not there; Fedge's own is {packaged}"
        )
    return flatten(read_toml(packaged_file(name) if is_packaged(name) else Path(name), description))


def parse_override(text: str) -> dict[str, Scalar]:
    """One ``-c`` argument as a flat mapping.

    Args:
        text: ``key=value …``, the name of a TOML file, or a packaged configuration ("fedge:hierfl"); a word
            without quotes is text, e.g. ``train.model=cnn``.

    Raises:
        ConfigError: the file cannot be read, or the text is not a list of TOML values.
    """
    if text.strip().endswith(".toml") or is_packaged(text.strip()):
        return read_config(text.strip(), "-c")
    pairs = _PAIR.findall(text)
    lines = "\n".join(f"{key} = {_quote_word(value)}" for key, value in pairs)
    leftover = _PAIR.sub("", text).strip()
    if leftover:
        is_list = leftover.endswith("]") and "[" in text
        step = "write lists without blanks, as [0.9,0.99]" if is_list else "e.g. -c 'train.lr=0.1'"
        if packaged := packaged_like(leftover):
            step = f"Fedge's own is {packaged}"
        elif re.search(r"\w\s*=\s|\s=", text):
            step = "write no blanks around =, as -c 'train.lr=0.1'"
        raise ConfigError(f"-c must be key=value pairs or a .toml file, but has {leftover!r}; {step}")
    keys = [key for key, _ in pairs]
    repeated = next((key for key in keys if keys.count(key) > 1), None)
    if repeated is not None:
        raise ConfigError(
            f"-c must have a key once, but has {repeated} {keys.count(repeated)} times in {shown(text)}; "
            f"remove the others"
        )
    try:
        return flatten(tomllib.loads(lines))
    except _NOT_TOML as error:
        invalid = next((f"{key}={value}" for key, value in pairs if not _is_toml(_quote_word(value))), text)
        raise ConfigError(
            f"-c must be key=value pairs with TOML values, but has {invalid!r} ({error}); "
            """quote text, as in -c 'train.model="cnn"'"""
        ) from error


def refuse_unquoted(overrides: Sequence[str]) -> None:
    """Raise ConfigError for text without quotes in ``-c`` of `flwr run`, because Flower only takes TOML."""
    for text in overrides:
        for key, value in _PAIR.findall(text):
            if _quote_word(value) != value:
                raise ConfigError(
                    f"-c of flwr run must have text in quotes, but has {key}={value}; "
                    f"write '{key}={_quote_word(value)}', or use fedge run"
                )


def _quote_word(value: str) -> str:
    """A value in TOML quotes if it is an unquoted word, e.g. 2x3x4 or cnn.

    The option's own type check reports words if it accepts no text.
    """
    return json.dumps(value) if _WORD.fullmatch(value) and not _is_toml(value) else value


def _is_toml(value: str) -> bool:
    """Whether a value is valid TOML without quotes: a number, true, a date."""
    try:
        tomllib.loads(f"value = {value}")
    except _NOT_TOML:
        return False
    return True


_MOST_SUPERNODES = 100_000


SERVER_APP, CLIENT_APP = "fedge.server_app:app", "fedge.client_app:app"


class Project:
    """Flower's part of a pyproject.toml.

    Attributes:
        folder: folder of the pyproject.toml.
        packaged: whether it is Fedge's own file, because the app's folder has none, or one without tables of
            Flower and Fedge.
        why_packaged: reason why Fedge's own file is used; empty otherwise.
        path: path of the pyproject.toml.
        server_app, client_app: the app's components, "module:name".
    """

    def __init__(self, app: Path) -> None:
        """Read ``app/pyproject.toml``, or Fedge's own for a folder without one or with another project's.

        Raises:
            ConfigError: there is no such folder, or its pyproject.toml has no Flower app.
        """
        self.path = app / "pyproject.toml"
        is_there = os.path.lexists(self.path) or not os.path.isdir(app)
        if not is_there and all((app / name).is_file() for name in (MANIFEST, "run.log")):
            raise ConfigError(
                f"the folder of pyproject.toml cannot be {printable(str(app))}, which is a run's; "
                f"fedge resume continues a run, and its report has the command that repeats it"
            )
        tool = self._tool_table() if is_there else {}
        self.packaged, self.why_packaged = not tool.keys() & {"flwr", "fedge"}, ""
        if self.packaged:
            location = "this folder" if app == Path() else printable(str(app))
            missing = "[tool.flwr.app] in pyproject.toml" if is_there else f"pyproject.toml in {location}"
            self.why_packaged = f"no {missing}"
            self.path = packaged_folder() / "pyproject.toml"
            tool = self._tool_table()
        self.folder = self.path.parent
        add_search_folders(app)
        table = self._checked_table("tool.flwr", tool.get("flwr", {}))
        if "app" not in table:
            raise ConfigError(
                f"pyproject.toml must have [tool.flwr.app], but {self.path} does not; name the app's folder"
            )
        app_table = self._checked_table("tool.flwr.app", table["app"])
        self._config = self._checked_table("tool.flwr.app.config", app_table.get("config", {}))
        components = self._checked_table("tool.flwr.app.components", app_table.get("components", {}))
        self.server_app = str(components.get("serverapp", SERVER_APP))
        self.client_app = str(components.get("clientapp", CLIENT_APP))
        own_federations = self._checked_table("tool.fedge", tool.get("fedge", {})).get("federations", {})
        self._read_federations(
            self._checked_table("tool.flwr.federations", table.get("federations", {})),
            self._checked_table("tool.fedge.federations", own_federations),
        )

    def _read_federations(self, flower_federations: dict[str, Any], own_federations: dict[str, Any]) -> None:
        """Read federations from Flower's table and Fedge's own, or else from Flower's configuration."""
        self._default = own_federations.pop("default", None) or flower_federations.pop("default", None)
        flower_federations.pop("default", None)
        self._federations = {**flower_federations, **own_federations}
        self._own_federations = frozenset(own_federations)
        if not self._federations and flower_config().is_file():
            links, default = connections(read_toml(flower_config(), "Flower's configuration"))
            self._federations = {name: link for name, link in links.items() if "options" in link}
            self._default = default if default in self._federations else None

    def is_own(self, name: str | None) -> bool:
        """Whether a federation is in [tool.fedge.federations], which Flower does not read."""
        return (name or self._default) in self._own_federations

    def refuse_unknown_to_flower(self, name: str | None) -> None:
        """Raise ConfigError for a federation of [tool.fedge.federations], which `flwr run` does not read."""
        federation = name or self._default
        if self.is_own(name):
            raise ConfigError(
                f"flwr run needs a federation of [tool.flwr.federations], but {federation} is in "
                f"[tool.fedge.federations]; use fedge run --engine flower"
            )

    def _tool_table(self) -> dict[str, Any]:
        """The table [tool] of the project's pyproject.toml, empty without one."""
        return self._checked_table("tool", read_toml(self.path, "the app's pyproject.toml").get("tool", {}))

    def _checked_table(self, name: str, value: Any) -> dict[str, Any]:
        """A table of pyproject.toml; ConfigError if its value is not a table."""
        if not isinstance(value, Mapping):
            raise ConfigError(f"[{name}] must be a table, but is {shown(value)}; correct {self.path}")
        return dict(value)

    @property
    def federations(self) -> tuple[str, ...]:
        """Names of all federations."""
        return tuple(self._federations)

    def refuse_other_server(self) -> None:
        """Raise ConfigError if the app has a ServerApp other than Fedge's."""
        if self.server_app != SERVER_APP:
            raise ConfigError(
                f"serverapp must be {SERVER_APP} for fedge run, which runs that server, but {self.path} has "
                f"{shown(self.server_app)}; run in another folder, or start this app with flwr run; to move "
                f"to Fedge: fedge docs quickstarts"
            )

    def run_config(self, overrides: Sequence[str]) -> dict[str, Scalar]:
        """Flat run config with `overrides` (``-c`` arguments) applied; later ones win.

        Raises:
            ConfigError: an override cannot be read or names an unknown key.
        """
        config = fold_tables(flatten(self._config))
        for text in overrides:
            override = parse_override(text)
            check_keys(list(override))
            config = fold_tables({**config, **override})
        return config

    def refuse_undeclared(self, overrides: Sequence[str]) -> None:
        """Raise ConfigError for a key of `overrides` refused by Flower, because pyproject.toml lacks it."""
        declared = flatten(self._config)
        for text in overrides:
            for key, value in parse_override(text).items():
                if key in declared:
                    continue
                table, _, name = key.rpartition(".")
                as_text = f"write {table}='{json.dumps({name: value})}'"
                advice = as_text if declared.get(table) == "" else f"add it to {self.path}, with any value"
                raise ConfigError(
                    f"-c of flwr run accepts only keys of [tool.flwr.app.config], but {key} is not there; "
                    f"{advice}, or use fedge run"
                )

    def as_declared(self, run_config: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Run config restricted to the keys of pyproject.toml, the only ones accepted by Flower.

        A table of arguments is split into its keys if pyproject.toml lists those.

        Raises:
            ConfigError: an option not at its default is missing from pyproject.toml.
        """
        declared, defaults = flatten(self._config), {key: default for key, (default, _) in options().items()}
        settings: dict[str, Scalar] = {}
        for key, value in run_config.items():
            nested = flatten(arguments_of(str(value), key), f"{key}.") if options()[key][1]["table"] else {}
            if key in declared or not nested:
                settings[key] = value
            else:
                settings.update(nested)
        accepted = {*declared, "clients"}  # set through the federation
        missing = [
            key for key, value in settings.items() if key not in accepted and value != defaults.get(key)
        ]
        if missing:
            raise ConfigError(
                f"options for Flower's engine must be in [tool.flwr.app.config], but {missing[0]} is "
                f"not there; add it to {self.path}, with any value"
            )
        return {key: value for key, value in settings.items() if key in declared}

    @property
    def default_federation(self) -> str:
        """Name of the default federation."""
        return str(self._default)

    def address(self, name: str | None) -> str | None:
        """Address of a federation's SuperLink (None: the default federation); None if simulated."""
        table = self._federations.get(name or self._default)
        return str(table["address"]) if isinstance(table, Mapping) and "address" in table else None

    def authority(self, name: str | None) -> tuple[bool, Path | None]:
        """Whether a federation's SuperLink has TLS, and the certificate file of its authority, if any."""
        table = self._federations.get(name or self._default, {})
        certificates = table.get("root-certificates")
        return table.get("insecure") is not True, self.folder / str(certificates) if certificates else None

    def federation(self, name: str | None) -> Federation:
        """A federation by name, or the default one.

        Raises:
            ConfigError: there is no federation of this name, or its number of SuperNodes is missing or
                invalid.
        """
        federation = name or self._default
        if not isinstance(federation, str) or federation not in self._federations:
            if not self._federations:
                raise ConfigError(
                    f"federations must be in [tool.flwr.federations], but {self.path} has none; add one, as "
                    f'default = "local" and local.options.num-supernodes = 9'
                )
            names = ", ".join(self._federations)
            raise ConfigError(
                f"federation must be one of {names}, but is {shown(federation)}; see [tool.flwr.federations]"
            )
        table = self._federations[federation]
        if isinstance(table, Mapping) and "address" in table and "options" not in table:
            return Federation()
        count = flatten({"federation": table}).get("federation.options.num-supernodes")
        if type(count) is not int or count < 1:
            raise ConfigError(
                f"federation {federation} must set options.num-supernodes to a whole number of at least 1, "
                f"but has {shown(count)}; set it in {self.path}"
            )
        if count > _MOST_SUPERNODES:
            raise ConfigError(
                f"federation {federation} must have at most {_MOST_SUPERNODES} options.num-supernodes, "
                f"but has {shown(count)}; lower it in {self.path}"
            )
        return replace(from_backend(count, table["options"].get("backend", {})), is_default=not name)
