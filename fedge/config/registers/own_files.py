"""Source files of a user's part: its own file, and the user's files imported from there.

Imports are found by parsing, so imports inside functions count, and unrelated modules loaded in the process
do not. Installed packages, the standard library and Fedge are left out.
"""

import ast
import hashlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedge.config.registers.failing import is_own_file

_NOT_OWN = frozenset({"fedge", "hhar"})


def own_files(code: Any, folders: tuple[str, ...] = ()) -> dict[str, Path]:
    """Name → source file of a class, function or object's class and of its imports, its own file first.

    Names are paths relative to the import folder, so they agree between machines. Empty for code typed into
    an interpreter.

    Args:
        code: a part.
        folders: further folders with the user's modules, beside the part's own.
    """
    try:
        first = Path(source_file(code)).resolve()
        _scan_imports(*_identity(first))
    except (OSError, TypeError):
        return {}
    module, root = _module_of(code, first)
    if not is_own_file(str(first)):
        return {first.name: first}
    return _import_closure(first, module, _roots(root, folders))


def source_file(code: Any) -> str:
    """File of a class, function or object's class; OSError or TypeError without one."""
    is_code = hasattr(code, "__code__") or inspect.isclass(code)
    return str(inspect.getsourcefile(code if is_code else type(code)))


def file_sha256(file: Path) -> str:
    """The SHA-256 of a file; "" if it cannot be read."""
    try:
        return _scan_imports(*_identity(file))[0]
    except OSError:
        return ""


def digest_of(files: Mapping[str, str]) -> str:
    """Combined SHA-256 of a mapping, file name → SHA-256; for a single file, the file's own."""
    if len(files) == 1:
        return next(iter(files.values()))
    lines = "\n".join(f"{name} {sha256}" for name, sha256 in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest() if files else ""


def _import_closure(first: Path, module: str, roots: list[Path]) -> dict[str, Path]:
    """Name → file of a module and of all its imports."""
    files: dict[str, Path] = {}
    pending = [(module, first), *_modules(list(filter(None, [module.rpartition(".")[0]])), roots)]
    while pending:
        name, file = pending.pop(0)
        is_package = file.name == "__init__.py"
        relative_path = (
            f"{name.replace('.', '/')}/__init__.py" if is_package else f"{name.replace('.', '/')}.py"
        )
        if relative_path in files:
            continue
        files[relative_path] = file
        package = name if is_package else name.rpartition(".")[0]
        imported = [_absolute_name(word, package) for word in _scan_imports(*_identity(file))[1]]
        pending += _modules(sorted(filter(None, imported)), roots)
    return files


def _modules(names: list[str], roots: list[Path]) -> Iterator[tuple[str, Path]]:
    """The user's modules with these dotted names, and their packages."""
    for name in names:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            file = _find_own_module(parts[:count], roots)
            if file is not None:
                yield ".".join(parts[:count]), file


def _find_own_module(parts: list[str], roots: list[Path]) -> Path | None:
    """The file of a module, or None if it is not the user's own."""
    if parts[0] in _NOT_OWN or parts[0] in sys.stdlib_module_names:
        return None
    for root in roots:
        for file in (root.joinpath(*parts) / "__init__.py", root.joinpath(*parts).with_suffix(".py")):
            if file.is_file():
                return file if is_own_file(str(file)) else None
    return None


def _module_of(code: Any, first: Path) -> tuple[str, Path]:
    """The dotted name of a part's module, and its import folder."""
    name = str(getattr(code, "__module__", None) or type(code).__module__)
    parts = name.split(".")
    is_package = first.name == "__init__.py"
    base = first.parent if is_package else first.with_suffix("")
    if list(base.parts[-len(parts) :]) != parts:  # a script, or a function of a renamed module
        return first.stem, first.parent
    return name, base.parents[len(parts) - 1]


def _roots(root: Path, folders: tuple[str, ...]) -> list[Path]:
    """Import folders to search: the part's own, the given ones, and Python's path."""
    here = [Path.cwd()] if has_working_folder() else []
    paths = [root, *map(Path, folders)]
    for path in sys.path:
        paths += [Path(path)] if path else here
    return list(dict.fromkeys(path for path in paths if path.is_dir()))


def has_working_folder() -> bool:
    """Whether the working directory still exists."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _absolute_name(word: str, package: str) -> str:
    """Absolute form of a relative import within a package; "" if it leads outside."""
    dots = len(word) - len(word.lstrip("."))
    if not dots:
        return word
    parts = package.split(".") if package else []
    if dots - 1 > len(parts):
        return ""
    return ".".join([*parts[: len(parts) - dots + 1], *filter(None, [word.lstrip(".")])])


def _identity(file: Path) -> tuple[str, int, int, int]:
    """A file's path and stat values, which change with its content."""
    status = os.stat(file)
    return str(file), status.st_mtime_ns, status.st_ctime_ns, status.st_size


@lru_cache(maxsize=1024)
def _scan_imports(file: str, *state: int) -> tuple[str, tuple[str, ...]]:
    """The SHA-256 of a file and its imported names, relative ones with leading dots."""
    content = Path(file).read_bytes()
    names: list[str] = []
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        tree = ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            dot = "" if not node.module else "."
            names += [base, *(f"{base}{dot}{alias.name}" for alias in node.names if alias.name != "*")]
    return hashlib.sha256(content).hexdigest(), tuple(dict.fromkeys(names))
