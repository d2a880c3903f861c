"""Code named in a file: located without importing it, shown by file and hash, and imported only if trusted.

A run folder, a model card or a checkpoint may come from anyone, and may name a user's part as "module:Name".
Such code is searched on Python's path, in the working directory, and in folders in which this user has run
Fedge; never in the folder naming it, nor in the standard library. It is imported only if the user trusts its
file's SHA-256: by ``--trust-code``, or because an earlier run of theirs used it. Trust is recorded outside
all run folders, in ``$XDG_CONFIG_HOME/fedge/trusted-code.json`` (otherwise ``~/.config``), which counts only
if the user owns it and no one else can write to it.
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
from fedge.config.registers.register import Register, extend_path, search_folders, search_working_folder

FLAG = "--trust-code"
_MAIN = "__main__"
_LARGEST = 2**20  # bytes of answers
_BY_FLAG, _BY_RUN = "--trust-code", "run"  # ways to trust code
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundCode:
    """Code located by name, not imported.

    Attributes:
        option: key of the option naming it.
        name: "module:Name", or the name of an entry point.
        code: "module:Name".
        file: file of the module.
        sha256: SHA-256 of this file.
        origin: installed package declaring it as an entry point; else empty.
    """

    option: str
    name: str
    code: str
    file: Path
    sha256: str
    origin: str = ""

    def __str__(self) -> str:
        """Description for the user."""
        return f"{self.option} {self.name} is code of {self.file} (sha256 {self.sha256[:16]}…)"


def trusted_code(
    register: Register, name: str, *, never_in: Path | None, trust: bool = False
) -> FoundCode | None:
    """The trusted code behind a name in a file; None for an object passed in this process.

    Args:
        register: of the part.
        name: of the part; not a built-in one.
        never_in: folder of the file; code in it is refused.
        trust: trust the code from now on.

    Raises:
        ConfigError: the code is not found, lies in a refused folder, or is not trusted.
    """
    if register.is_given(name):
        return None
    found = find_code(register, name, never_in)
    is_known = is_recorded(found)
    if trust:
        if not is_known:  # tell the user, on the terminal or in a leaf server's log, which code is trusted
            _LOG.warning("%s, trusted from now on", found)
        record_trust([found])
    elif not is_known:
        raise ConfigError(
            f"{found}, which would be executed; read it, then add {FLAG} once (the consent is remembered)"
        )
    return found


def load_trusted(
    register: Register, name: str, *, never_in: Path | None, trust: bool = False
) -> tuple[Any, bool]:
    """The class or function behind a name in a file, imported if trusted.

    Arguments and errors are those of `trusted_code`.

    Returns:
        (code, whether it was passed in this process or used by an earlier run of this user).
    """
    found = trusted_code(register, name, never_in=never_in, trust=trust)
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
    """Locate the code of a user's part without importing anything.

    Raises:
        ConfigError: the code is not found, or lies in a refused folder.
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
    search_working_folder()
    extend_path()
    file = _find_module_file(module)
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


def _find_module_file(module: str) -> Path | None:
    """The file of a module, located by Python's finders without an import; None without one."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded:
        return Path(loaded).resolve()
    path: Any = None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        spec = _find_spec(".".join(parts[:depth]), path)
        if spec is None:
            return None
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if path is None and depth < len(parts):
            return None
    return Path(spec.origin).resolve() if spec is not None and spec.has_location and spec.origin else None


def _find_spec(module: str, path: Any) -> Any:
    """Spec from the first finder knowing a module; None if none does."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        with suppress(Exception):  # finders are third-party code, and a damaged package may raise anything
            spec = find(module, path, None) if find is not None else None
            if spec is not None:
                return spec
    return None


# --- answers ---------------------------------------------------------------------------------------


def trust_file() -> Path:
    """File for the record of trusted code."""
    return own_place("XDG_CONFIG_HOME", ".config") / "fedge" / "trusted-code.json"


def is_recorded(found: FoundCode) -> bool:
    """Whether this user trusts this code under this name, with this file hash."""
    return found.code in _load_trust()["code"].get(found.sha256, ())


def has_run(found: FoundCode) -> bool:
    """Whether an earlier run of this user used this code under this name."""
    return bool(_load_trust()["code"].get(found.sha256, {}).get(found.code) == _BY_RUN)


def record_trust(codes: Iterable[FoundCode], folders: Iterable[str] = (), way: str = _BY_FLAG) -> None:
    """Record code as trusted, and folders as the user's own; does nothing if the file cannot be written."""
    recorded = _load_trust()
    names_by_digest = {digest: dict(names) for digest, names in recorded["code"].items()}
    all_folders = list(recorded["folders"])
    for found in codes:
        names = names_by_digest.setdefault(found.sha256, {})
        names[found.code] = _BY_RUN if names.get(found.code) == _BY_RUN else way
    all_folders += [folder for folder in folders if folder not in all_folders]
    if names_by_digest == recorded["code"] and all_folders == recorded["folders"]:
        return
    description = "code that this user has said yes to, by the SHA-256 of its file, and folders of own runs"
    text = json.dumps({"about": description, "code": names_by_digest, "folders": all_folders}, indent=1)
    with suppress(OSError, ConfigError):
        path = trust_file()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=".trusted-")  # mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(partial, path)


def own_folders(folders: Iterable[str | Path]) -> list[str]:
    """The given folders in which this user has run Fedge."""
    recorded = _load_trust()["folders"]
    return [str(folder) for folder in folders if str(Path(folder).resolve()) in recorded]


def record_parts(parts: Mapping[str, tuple[Register, str]]) -> None:
    """Record the user's own parts of a starting run as trusted.

    Args:
        parts: option → register and name.
    """
    codes = []
    for register, name in parts.values():
        with suppress(ConfigError):  # of a notebook, or made on the way: there is no file to find later
            codes.append(find_code(register, name))
    if codes:
        record_trust(codes, search_folders(), _BY_RUN)


def _load_trust() -> dict[str, Any]:
    """Recorded trust: {"code": {sha256: {"module:Name": way}}, "folders": [folder]}."""
    empty: dict[str, Any] = {"code": {}, "folders": []}
    try:
        descriptor = os.open(trust_file(), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            is_own = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not is_own or not stat.S_ISREG(status.st_mode):
                return empty
            recorded = json.loads(stream.read(_LARGEST))
        code = {
            str(digest): {str(name): str(way) for name, way in names.items()}
            for digest, names in recorded["code"].items()
        }
        return {"code": code, "folders": [str(folder) for folder in recorded["folders"]]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return empty
