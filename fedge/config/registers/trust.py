"""Code that a file names: found without carrying it out, shown by file and hash, and taken after a yes alone.

A run folder, a model card or a checkpoint may come from anybody, and may name parts of the user's own as
"module:Name". Such code is looked for where Python looks, in the working directory, and in folders in which
this user has carried out runs; never in the folder that names it, nor in Python's own library. It is imported
once the user has said yes to its file's SHA-256: by ``--trust-code``, or by a run of theirs that carried it
out. Answers are kept outside all run folders, in ``$XDG_CONFIG_HOME/fedge/trusted-code.json`` (otherwise
``~/.config``), which counts only if it is the user's and nobody else can write to it.
"""

import hashlib
import json
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.config.registers.own_places import own_place
from fedge.config.registers.register import Register, extend_path, look_in, looked_in

FLAG = "--trust-code"
_MAIN = "__main__"
_LARGEST = 2**20  # bytes of answers
_TOLD, _RAN = "--trust-code", "run"  # ways of saying yes
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundCode:
    """Code behind a name, of which nothing was carried out.

    Attributes:
        option: key of the option that names it.
        name: "module:Name", or the name of an entry point.
        code: "module:Name".
        file: of the module.
        sha256: of that file.
        origin: installed package whose entry point it is; empty for others.
    """

    option: str
    name: str
    code: str
    file: Path
    sha256: str
    origin: str = ""

    def __str__(self) -> str:
        """Words for a user."""
        return f"{self.option} {self.name} is code of {self.file} (sha256 {self.sha256[:16]}…)"


def trusted(register: Register, name: str, *, never_in: Path | None, trust: bool = False) -> FoundCode | None:
    """The code that a file names by a part of the user's own, which may be imported; None for this process's.

    Args:
        register: of the part.
        name: of the part; not one of Fedge's.
        never_in: folder of the file, whose code is not taken.
        trust: the user says yes to it, which is remembered.

    Raises:
        ConfigError: it is not found, lies where no code is taken from, or nobody has said yes to it.
    """
    if register.is_given(name):
        return None
    found = find_code(register, name, never_in)
    known = is_remembered(found)
    if trust:
        if not known:  # on the terminal, or in a leaf server's log: what the yes was given to
            _LOG.warning("%s, trusted from now on", found)
        remember([found])
    elif not known:
        raise ConfigError(
            f"{found}, which would be executed; read it, then add {FLAG} once (the consent is remembered)"
        )
    return found


def load_trusted(
    register: Register, name: str, *, never_in: Path | None, trust: bool = False
) -> tuple[Any, bool]:
    """The class or function that a file names by a part of the user's own, imported after a yes.

    Arguments and errors as of `trusted`.

    Returns:
        (code, whether this process was given it or a run of this user has carried it out).
    """
    found = trusted(register, name, never_in=never_in, trust=trust)
    code = register.load(name)
    if found is not None:
        module = found.code.partition(":")[0]
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None or Path(file).resolve() != found.file:
            raise ConfigError(
                f"{register.option} {name} must be imported from {found.file}, where it was found, but is of "
                f"{file}; start in the folder of its project"
            )
    return code, found is None or has_run(found)


def find_code(register: Register, name: str, never_in: Path | None = None) -> FoundCode:
    """The code behind the name of a part of the user's own, looked for without importing anything.

    Raises:
        ConfigError: it is not found, or lies where no code is taken from.
    """
    entry = register.entry(name)
    module, _, _ = entry.code.partition(":")
    if module == _MAIN:
        raise ConfigError(
            f"{register.option} must be code of an own project or an installed package, but {name} is of a "
            f"script or notebook; go on there, or move it to a file of its own"
        )
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(
            f"{register.option} must be code of an own project or an installed package, but {name} is "
            f"Python's own; do not use a file that names it"
        )
    look_in(Path.cwd())
    extend_path()
    file = _file_of(module)
    if file is None:
        raise ConfigError(
            f"{register.option} {name} cannot be imported: there is no module {module} with a file here; "
            f"start where {module.split('.')[0]} can be found"
        )
    if never_in is not None and file.is_relative_to(never_in.resolve()):
        raise ConfigError(
            f"{register.option} must be code of an own project or an installed package, but {name} lies in "
            f"the folder that names it, {never_in}; look at it, and move it to your project if you trust it"
        )
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"{register.option} {name} cannot be imported: {file}: {error.strerror or error}; fix that"
        ) from error
    return FoundCode(register.option, name, entry.code, file, digest, entry.origin)


def _file_of(module: str) -> Path | None:
    """The file of a module, found by Python's finders, nothing imported; None without one."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded:
        return Path(loaded).resolve()
    path: Any = None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        spec = _spec(".".join(parts[:depth]), path)
        if spec is None:
            return None
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if path is None and depth < len(parts):
            return None
    return Path(spec.origin).resolve() if spec is not None and spec.has_location and spec.origin else None


def _spec(module: str, path: Any) -> Any:
    """Spec by the first finder that knows a module; None where none does."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        with suppress(Exception):  # finders are others' code, and a damaged package may raise anything
            spec = find(module, path, None) if find is not None else None
            if spec is not None:
                return spec
    return None


# --- answers ---------------------------------------------------------------------------------------


def remembered_in() -> Path:
    """The file in which a yes is kept."""
    return own_place("XDG_CONFIG_HOME", ".config") / "fedge" / "trusted-code.json"


def is_remembered(found: FoundCode) -> bool:
    """Whether this user has said yes to this code, under this name, in a file of these bytes."""
    return found.code in _said()["code"].get(found.sha256, ())


def has_run(found: FoundCode) -> bool:
    """Whether a run of this user has carried this code out under this name."""
    return bool(_said()["code"].get(found.sha256, {}).get(found.code) == _RAN)


def remember(codes: Iterable[FoundCode], folders: Iterable[str] = (), how: str = _TOLD) -> None:
    """Keep a yes to code, and folders as the user's own; where nothing can be written, nothing is kept."""
    said = _said()
    known = {digest: dict(names) for digest, names in said["code"].items()}
    own = list(said["folders"])
    for found in codes:
        names = known.setdefault(found.sha256, {})
        names[found.code] = _RAN if names.get(found.code) == _RAN else how
    own += [folder for folder in folders if folder not in own]
    if known == said["code"] and own == said["folders"]:
        return
    about = "code that this user has said yes to, by the SHA-256 of its file, and folders of own runs"
    text = json.dumps({"about": about, "code": known, "folders": own}, indent=1)
    with suppress(OSError, ConfigError):
        path = remembered_in()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=".trusted-")  # mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(partial, path)


def own_folders(folders: Iterable[str | Path]) -> list[str]:
    """Those of some folders in which this user has carried out runs."""
    own = _said()["folders"]
    return [str(folder) for folder in folders if str(Path(folder).resolve()) in own]


def remember_parts(parts: Mapping[str, tuple[Register, str]]) -> None:
    """Keep a yes to the parts of the user's own with which a run of theirs begins.

    Args:
        parts: option → register and name.
    """
    codes = []
    for register, name in parts.values():
        with suppress(ConfigError):  # of a notebook, or made on the way: there is no file to find later
            codes.append(find_code(register, name))
    if codes:
        remember(codes, looked_in(), _RAN)


def _said() -> dict[str, Any]:
    """Earlier answers: {"code": {sha256: {"module:Name": way}}, "folders": [folder]}."""
    nothing: dict[str, Any] = {"code": {}, "folders": []}
    try:
        descriptor = os.open(remembered_in(), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as stream:
            about = os.fstat(descriptor)
            is_own = about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not is_own or not stat.S_ISREG(about.st_mode):
                return nothing
            said = json.loads(stream.read(_LARGEST))
        code = {
            str(digest): {str(name): str(how) for name, how in names.items()}
            for digest, names in said["code"].items()
        }
        return {"code": code, "folders": [str(folder) for folder in said["folders"]]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return nothing
