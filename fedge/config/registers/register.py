"""Registers of parts: each part's name, its meaning, and where its code is.

A part's code is imported on first use, so a configuration can be checked without torch or Flower, and no
module is imported for its side effects. `fedge.config.registers.parts` has the registers.

A name is built in, or comes from an installed package's entry point, or is "package.module:Name", searched on
Python's path, in the working directory and in the app's folder. In Python, the object itself can be passed
(`Register.given`).
"""

import importlib.metadata
import inspect
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, checked_value, nearest, shown
from fedge.config.registers.own_files import digest_of, file_sha256, own_files

_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_<][\w.<>]*")  # "package.module:Name"
_MOST_FILES = 200  # source files of a part, whose hashes are sent to other machines
_MAIN_ONLY = ("__main__", "<lambda>", "<locals>")  # in names of objects other processes cannot import


@dataclass(frozen=True)
class Entry:
    """One part.

    Attributes:
        name: value of the option selecting it.
        doc: description in one line.
        code: "module:Name" of its class or function; empty for an unknown name.
        traits: facts needed before its code is loaded, such as a method's need for the true groups.
        package: extra package to install; empty if Fedge's own dependencies suffice.
        origin: "fedge", or the package of a third-party part; empty for a user's own folder.
        reads: keys of options without effect unless the part lists them here.
        told: a sentence on its effect for reports; empty if its name and `doc` suffice.
        arguments: keyword argument → its `option`; built-in parts get all of them, with their defaults.
        quorum: "module:Name" of a function from the arguments to the number of models needed for its
            guarantee; empty for 1.
    """

    name: str
    doc: str
    code: str = ""
    traits: frozenset[str] = frozenset()
    package: str = ""
    origin: str = field(default="fedge", kw_only=True)
    reads: tuple[str, ...] = field(default=(), kw_only=True)
    told: str = field(default="", kw_only=True)
    arguments: Mapping[str, Any] = field(default_factory=dict, kw_only=True, hash=False)
    quorum: str = field(default="", kw_only=True)


_registers: list["Register"] = []  # all registers, in order of creation
_MOST_SUGGESTIONS = 2  # options for which a name may be meant


class Register:
    """All parts of one kind, in the order in which they are listed.

    Attributes:
        option: key of the option selecting one of them.
        group: entry-point group for parts of other packages.
    """

    def __init__(self, option: str, group: str, *entries: Entry) -> None:
        """Register the built-in parts, whose names must be unique."""
        self.option = option
        self.group = group
        self._entries = {entry.name: entry for entry in entries}
        assert len(self._entries) == len(entries), f"two parts of {option} have one name"
        self._objects: dict[str, Any] = {}  # objects of this process, by generated name
        _registers.append(self)

    def __iter__(self) -> Iterator[Entry]:
        """Yield every built-in part."""
        return iter(self._entries.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the built-in parts."""
        return tuple(self._entries)

    def names_with(self, trait: str) -> tuple[str, ...]:
        """The names of the built-in parts with a trait."""
        return tuple(entry.name for entry in self if trait in entry.traits)

    def has(self, name: str, trait: str) -> bool:
        """Whether a built-in part has a trait; False for users' parts, whose traits are unknown."""
        return name in self._entries and trait in self._entries[name].traits

    @property
    def keys_read(self) -> tuple[str, ...]:
        """Options read by only some built-in parts, each once."""
        return tuple(dict.fromkeys(key for entry in self for key in entry.reads))

    def reading(self, key: str) -> tuple[str, ...]:
        """Names of the built-in parts reading an option."""
        return tuple(entry.name for entry in self if key in entry.reads)

    def may_read(self, name: str, key: str) -> bool:
        """Whether a part reads an option; users' parts may read any."""
        return name not in self._entries or key in self._entries[name].reads

    def arguments(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of a part: the declared defaults, overridden by the given ones.

        Args:
            name: of the part.
            given: arguments set by the user; `-` in a name stands for `_`.

        Raises:
            ConfigError: a value is not allowed by the argument's declaration.
        """
        declared = self._entries[name].arguments if name in self._entries else {}
        merged = {word: rule.default for word, rule in declared.items()}
        for key, value in given.items():
            word = key.replace("-", "_")
            rule = declared.get(word)
            key = f"{self.option}-args.{word.replace('_', '-')}"
            merged[word] = value if rule is None else checked_value(key, value, rule.default, rule.metadata)
        return merged

    def quorum(self, name: str, arguments: Mapping[str, Any]) -> int:
        """Minimum number of models for which a rule's guarantee holds; 1 for users' parts.

        Args:
            name: of the part.
            arguments: result of `arguments`.
        """
        code = self._entries[name].quorum if name in self._entries else ""
        if not code:
            return 1
        module, _, function = code.partition(":")
        return int(getattr(import_module(module), function)(arguments))

    def told(self, name: str) -> str:
        """The sentence on a part for reports; empty for users' parts and where none is needed."""
        return self._entries[name].told if name in self._entries else ""

    def is_own(self, name: str) -> bool:
        """Whether a name stands for a part not built in."""
        return name not in self._entries

    def is_declared(self, name: str) -> bool:
        """Whether an installed package's entry point provides this name."""
        return self.is_own(name) and name in importlib.metadata.entry_points(group=self.group).names

    def is_code(self, name: str) -> bool:
        """Whether a text names a part, rather than for example a file."""
        if name in self._entries:
            return bool(self._entries[name].code)
        if name.endswith((".npz", ".NPZ")) or "/" in name or "\\" in name:
            return False
        points = importlib.metadata.entry_points(group=self.group)
        return bool(_CODE.fullmatch(name)) or name in points.names

    def entry(self, name: str, otherwise: str = "") -> Entry:
        """The entry for a name; its code is neither searched nor loaded.

        Args:
            name: of the part.
            otherwise: next step for the error if no known name is similar.

        Raises:
            ConfigError: there is no such part.
        """
        if name in self._entries:
            return self._entries[name]
        if _CODE.fullmatch(name):
            return Entry(name, "", name, origin="")
        points = importlib.metadata.entry_points(group=self.group)
        for point in points:
            if point.name == name:
                package = point.dist.name if point.dist else ""
                return Entry(name, f"of {package}", point.value, origin=package)
        names = [*self.names, *sorted(points.names)]
        raise ConfigError(
            f"{self.option} must be {'one of ' + ', '.join(names) + ', or ' if names else ''}"
            f'"module:Name", but is {shown(name)}'
            f"{_suggest_other_options(name) or nearest(name, names) or f'; {otherwise}' * bool(otherwise)}"
        )

    def load(self, name: str) -> Any:
        """The class or function behind a name; its module is imported on first use.

        Raises:
            ConfigError: there is no such part, or its code cannot be imported.
        """
        if name in self._objects:
            return self._objects[name]
        entry = self.entry(name)
        assert entry.code, f"{self.option}={name} does not name any code"
        module, _, path = entry.code.partition(":")
        if not self.is_own(name):
            return getattr(import_module(module), path)
        if module == "__main__" and path.isidentifier() and hasattr(sys.modules["__main__"], path):
            return getattr(sys.modules["__main__"], path)  # of this notebook or script
        if any(word in entry.code for word in _MAIN_ONLY):
            raise ConfigError(
                f"{self.option} must be code that can be imported, but {name} was an object of another "
                f"process; move it into a module, or give it to fedge.simulate again"
            )
        if not entry.origin:
            search_working_folder()
            extend_path()
        return self._import_attribute(name, module, path)

    def _import_attribute(self, name: str, module: str, path: str) -> Any:
        """An attribute of a user's or third party's module; import errors become one line."""
        try:
            with _mark_import(f"{self.option} {name}", module):
                target: Any = import_module(module)
        except _RunInImport as error:
            raise ConfigError(str(error)) from None
        except own_errors() as error:
            step = f"fix it, or start where {module.split('.')[0]} can be found"
            if module.endswith(".py"):
                step = f'name the module, not its file: "{module.removesuffix(".py")}:{path}"'
            raise ConfigError(
                f"{self.option} {name} cannot be imported: {own_error(error)}; {step}"
            ) from error
        for attribute in path.split("."):
            if not hasattr(target, attribute):
                public_names = [word for word in vars(target) if not word.startswith("_")]
                raise ConfigError(
                    f"{self.option} {name} cannot be imported: {module} has no {attribute}"
                    f"{nearest(attribute, public_names) or '; check its spelling'}"
                )
            target = getattr(target, attribute)
        return target

    def given(self, part: Any, number: int = 1) -> str:
        """Register an object of this process until `forget`; returns its name.

        Args:
            part: a name, returned unchanged, or the class or function itself.
            number: appended to the name if above 1, to tell several objects apart.

        Raises:
            ConfigError: `part` is not callable.
        """
        if isinstance(part, str):
            return part
        if not callable(part):
            raise ConfigError(
                f"{self.option} must be a name, a class or a function, but is {shown(part)}; see "
                "docs/extend.md"
            )
        kind = part.func if isinstance(part, partial) else part
        kind = kind if hasattr(kind, "__qualname__") else type(kind)
        name = f"{kind.__module__}:{kind.__qualname__}" + (f".{number}" if number > 1 else "")
        self._objects[name] = part
        return name

    def is_importable(self, part: Any) -> bool:
        """Whether another process can import a part: a name, or an object importable by its name."""
        if isinstance(part, str):
            return True
        module = sys.modules.get(getattr(part, "__module__", ""))
        if module is None or module.__name__ == "__main__":
            return False
        return getattr(module, getattr(part, "__qualname__", ""), None) is part

    def is_given(self, name: str) -> bool:
        """Whether a name stands for an object passed in this process, notebook or script."""
        module, _, path = name.partition(":")
        main = sys.modules.get("__main__")
        return name in self._objects or (module == "__main__" and path.isidentifier() and hasattr(main, path))

    def forget(self, name: str) -> None:
        """Remove a name registered by `given`; from now on it can only be imported."""
        self._objects.pop(name, None)

    @contextmanager
    def explaining_errors(self, name: str, *passed: type[Exception]) -> Iterator[None]:
        """Context in which an error of a user's part becomes a message: the part, the place, the next step.

        Args:
            name: of the part; errors of built-in parts pass unchanged.
            passed: exceptions raised on purpose, which pass unchanged.

        Raises:
            ConfigError: the user's code failed.
        """
        try:
            yield
        except own_errors() as error:
            if isinstance(error, (ConfigError, *passed)) or not self.is_own(name):
                raise
            raise ConfigError(f"{self.option} {name} failed: {own_error(error)}; fix it") from error

    def refuse_wrong_arguments(self, name: str, arguments: Mapping[str, Any], *positions: str) -> None:
        """Raise ConfigError when a part cannot be called with its arguments.

        Args:
            name: of the part; built-in parts without arguments always fit and are not loaded.
            arguments: keyword arguments set by the user.
            positions: names of the positional arguments passed by Fedge, in order.
        """
        if not self.is_own(name) and not arguments:
            return
        refuse_wrong_signature(
            self.load(name), f"{self.option} {name}", f"{self.option}-args", arguments, positions
        )


def _suggest_other_options(name: str) -> str:
    """Suggestion of other options that know a name; "" for unspecific names such as "none"."""
    suggestions = [f"{register.option}={name}" for register in _registers if name in register.names]
    return (
        f"; it is for another option: {' or '.join(suggestions)}"
        if 0 < len(suggestions) <= _MOST_SUGGESTIONS
        else ""
    )


def refuse_undeclared(register: Register, name: str, given: Iterable[str]) -> None:
    """Raise ConfigError for an argument not declared by a built-in part; users' parts take any.

    Args:
        register: of the part.
        name: of the part.
        given: names of arguments.
    """
    declared = next(
        ([_dashed(word) for word in part.arguments] for part in register if part.name == name), None
    )
    undeclared = next(
        (_dashed(word) for word in given if declared is not None and _dashed(word) not in declared), None
    )
    if declared is None or undeclared is None:
        return
    takers = " or ".join(part.name for part in register if undeclared in map(_dashed, part.arguments))
    raise ConfigError(
        f"{register.option}-args.{undeclared} must be an argument of {register.option} {name}, which takes "
        f"{', '.join(declared) or 'none'}{nearest(undeclared, declared) or '; leave it out'}"
        f"{takers and f', or set {register.option} to {takers}'}"
    )


def _dashed(word: str) -> str:
    """Name of an argument as written in a configuration."""
    return word.replace("_", "-")


def sha256_of_files(code: Any) -> dict[str, str]:
    """Name → SHA-256 of every source file of a user's part, the defining file first."""
    return {name: file_sha256(file) for name, file in own_files(code, tuple(_looked_in)).items()}


def source_sha256(code: Any) -> str:
    """Combined SHA-256 of a part's source files (`sha256_of_files`); "" without any."""
    return digest_of(sha256_of_files(code))  # none: typed into an interpreter


def code_facts(option: str, code: Any) -> dict[str, str]:
    """Hashes for `refuse_other_code` on another machine: option → SHA-256 of all files, and of each."""
    files = sha256_of_files(code)
    hashes = {f"{option} {name}": sha256 for name, sha256 in files.items()}
    return {option: digest_of(files), **(hashes if 1 < len(files) <= _MOST_FILES else {})} if files else {}


def refuse_other_code(option: str, name: str, code: Any, parts: Mapping[str, str]) -> None:
    """Raise ConfigError for a part whose source files differ from those of the run's server.

    Args:
        option: key of the part's option.
        name: of the part.
        code: class or function behind the name in this process.
        parts: `code_facts` of the server's code, without code typed into an interpreter.
    """
    code = getattr(code, "part", code)  # the object of a notebook
    files = own_files(code, tuple(_looked_in))
    local = sha256_of_files(code)
    expected = parts.get(option, "")
    if not local or not expected or digest_of(local) == expected:
        return
    remote = {
        key.removeprefix(f"{option} "): sha256
        for key, sha256 in parts.items()
        if key.startswith(f"{option} ")
    }
    remote = remote or {next(iter(files)): expected}
    file = next(
        (
            file_name
            for file_name in (*local, *sorted(remote))
            if local.get(file_name) != remote.get(file_name)
        ),
        "",
    )
    message = f"{option} {name} must be the same code on every machine, but {shown(file)}"
    if file not in local:
        raise ConfigError(f"{message} is at the server and not here; copy it to this machine")
    if file not in remote:
        raise ConfigError(f"{message} is here ({files[file]}) and not at the server; copy the server's files")
    raise ConfigError(
        f"{message} has sha256 {local[file][:8]}… here, and {remote[file][:8]}… at the server; copy the "
        f"server's file to {files[file]}"
    )


def refuse_class(register: Register, name: str, call: str) -> None:
    """Raise ConfigError when a part that must be a function is a class.

    A class with as many arguments, such as `torch.nn.CrossEntropyLoss`, would fail only when called.

    Args:
        register: of the part.
        name: of the part.
        call: arguments of the function, such as "(answers, y)".
    """
    if register.is_own(name) and inspect.isclass(register.load(name)):
        raise ConfigError(
            f"{register.option} {name} must be a function of {call}, but is a class; name a function that "
            f"makes one and returns its answer (docs/extend.md)"
        )


def refuse_wrong_signature(
    code: Any,
    description: str,
    table: str,
    arguments: Mapping[str, Any],
    positions: tuple[str, ...],
    others: Sequence[str] = (),
) -> None:
    """Raise ConfigError when a class or function cannot be called with `positions` and `arguments`.

    Args:
        code: the class or function.
        description: its option and name, for the message.
        table: key of the table of arguments.
        arguments: keyword arguments.
        positions: names of the positional arguments.
        others: arguments of the same table for another class, which the user may have meant.
    """
    try:
        signature = inspect.signature(code)
    except (TypeError, ValueError):  # some built-in types have none; the call itself will tell
        return
    try:
        signature.bind(*positions, **arguments)
    except TypeError as error:
        if missing := _missing_arguments(signature, arguments, positions):
            keys = " and ".join(f"{table}.{_dashed(name)}" for name in missing)
            raise ConfigError(
                f"{description} must be given {' and '.join(missing)}, without a default; set {keys}"
            ) from error
        accepted = [*signature.parameters, *others]
        hint = next((nearest(key, accepted) for key in arguments if key not in accepted), "")
        parameters = [
            parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()
        ]
        names = signature.replace(parameters=parameters, return_annotation=signature.empty)
        raise ConfigError(
            f"{description}{names} must take ({', '.join([*positions, *arguments])}), but: {error}"
            f"{hint or f'; change {table}, or its parameters'}"
        ) from error


def _missing_arguments(
    signature: inspect.Signature, arguments: Mapping[str, Any], positions: tuple[str, ...]
) -> list[str]:
    """Names of the required arguments missing from a call; empty if the call is wrong in other ways."""
    remaining = [
        parameter for parameter in signature.parameters.values() if parameter.kind not in _ANY_NUMBER
    ][len(positions) :]
    missing = [
        parameter.name
        for parameter in remaining
        if parameter.default is parameter.empty and parameter.name not in arguments
    ]
    try:
        signature.bind(*positions, **arguments, **dict.fromkeys(missing))
    except TypeError:
        return []
    return missing


_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _RunInImport(ConfigError):
    """A run started by the import of its own part."""


_IMPORT_VARIABLE = "FEDGE_IMPORTED"  # environment variable for processes started during an import: the part
_current_import = threading.local()  # `part`: being imported by this thread


@contextmanager
def _mark_import(part: str, module: str) -> Iterator[None]:
    """Mark an import for `refuse_run_in_import`, here and in processes started by the import.

    Only the main thread marks processes, because the environment is shared by all threads.
    """
    if module in sys.modules:  # carries out nothing
        yield
        return
    is_main_thread = threading.current_thread() is threading.main_thread()
    previous = getattr(_current_import, "part", "")
    _current_import.part = part
    if is_main_thread:
        os.environ[_IMPORT_VARIABLE] = part
    try:
        yield
    finally:
        _current_import.part = previous
        if is_main_thread:
            os.environ.pop(_IMPORT_VARIABLE, None)


def refuse_run_in_import() -> None:
    """Raise ConfigError for a run started by the import of a part, as by a script naming its own function.

    The run would import the script, which would start another run, and so on.
    """
    part = getattr(_current_import, "part", "") or os.environ.get(_IMPORT_VARIABLE, "")
    if part:
        raise _RunInImport(
            f"a run must not be started by the import of {part.partition(' ')[2]}, but the code beside it "
            f'starts one; put that below `if __name__ == "__main__":`, or {part} into a file of its own'
        )


_looked_in: list[str] = []


def add_search_folders(*folders: "Path | str") -> None:
    """Add these folders to the search for parts outside packages."""
    for folder in folders:
        path = str(Path(folder).resolve())
        if path not in _looked_in:
            _looked_in.append(path)


def search_working_folder() -> None:
    """`add_search_folders` the working directory, unless it was removed."""
    with suppress(OSError):
        add_search_folders(Path.cwd())


def extend_path() -> None:
    """Put the folders of `add_search_folders` on Python's path; only for runs with a user's code."""
    for path in _looked_in:
        if path not in sys.path:
            sys.path.insert(0, path)


def search_folders() -> list[str]:
    """The folders passed to `add_search_folders`, for other processes."""
    return list(_looked_in)
