"""Files of the user's own that a part is made of: its own, and those that it imports in turn.

Found by reading: files imported only while a function runs are among them, and whatever else a process has
imported is not. Installed packages, Python's library and Fedge are not of the user's own.
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
    """Name → file of everything that a class, a function or an object's class is made of, its own file first.

    Names are places below the folder that is imported from, the same on every machine. Empty for code typed
    into an interpreter.

    Args:
        code: a part.
        folders: in which modules of the user's lie, beside the folder of the part.
    """
    try:
        first = Path(source_file(code)).resolve()
        _imports(*_identity(first))
    except (OSError, TypeError):
        return {}
    module, root = _module_of(code, first)
    if not is_own_file(str(first)):
        return {first.name: first}
    return _found(first, module, _roots(root, folders))


def source_file(code: Any) -> str:
    """The file in which a class, a function or an object's class is; OSError or TypeError for none."""
    is_code = hasattr(code, "__code__") or inspect.isclass(code)
    return str(inspect.getsourcefile(code if is_code else type(code)))


def file_sha256(file: Path) -> str:
    """The SHA-256 of a file; "" where it cannot be read."""
    try:
        return _imports(*_identity(file))[0]
    except OSError:
        return ""


def digest_of(files: Mapping[str, str]) -> str:
    """One SHA-256 of name → SHA-256; that of a single file is the file's."""
    if len(files) == 1:
        return next(iter(files.values()))
    lines = "\n".join(f"{name} {sha256}" for name, sha256 in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest() if files else ""


def _found(first: Path, module: str, roots: list[Path]) -> dict[str, Path]:
    """Name → file of a module and of everything that it imports."""
    found: dict[str, Path] = {}
    waiting = [(module, first), *_modules(list(filter(None, [module.rpartition(".")[0]])), roots)]
    while waiting:
        name, file = waiting.pop(0)
        is_package = file.name == "__init__.py"
        place = f"{name.replace('.', '/')}/__init__.py" if is_package else f"{name.replace('.', '/')}.py"
        if place in found:
            continue
        found[place] = file
        package = name if is_package else name.rpartition(".")[0]
        wanted = [_absolute(word, package) for word in _imports(*_identity(file))[1]]
        waiting += _modules(sorted(filter(None, wanted)), roots)
    return found


def _modules(names: list[str], roots: list[Path]) -> Iterator[tuple[str, Path]]:
    """The modules of the user's own with these dotted names, and the packages that they lie in."""
    for name in names:
        words = name.split(".")
        for count in range(1, len(words) + 1):
            file = _file_of(words[:count], roots)
            if file is not None:
                yield ".".join(words[:count]), file


def _file_of(words: list[str], roots: list[Path]) -> Path | None:
    """The file of a module, or None where it is not of the user's own."""
    if words[0] in _NOT_OWN or words[0] in sys.stdlib_module_names:
        return None
    for root in roots:
        for file in (root.joinpath(*words) / "__init__.py", root.joinpath(*words).with_suffix(".py")):
            if file.is_file():
                return file if is_own_file(str(file)) else None
    return None


def _module_of(code: Any, first: Path) -> tuple[str, Path]:
    """The dotted name of a part's module, and the folder that it is imported from."""
    name = str(getattr(code, "__module__", None) or type(code).__module__)
    words = name.split(".")
    is_package = first.name == "__init__.py"
    where = first.parent if is_package else first.with_suffix("")
    if list(where.parts[-len(words) :]) != words:  # a script, or a function of a module that was renamed
        return first.stem, first.parent
    return name, where.parents[len(words) - 1]


def _roots(root: Path, folders: tuple[str, ...]) -> list[Path]:
    """Folders to look for modules in: that of the part, those given, and Python's."""
    paths = [root, *map(Path, folders), *(Path(path or os.getcwd()) for path in sys.path)]
    return list(dict.fromkeys(path for path in paths if path.is_dir()))


def _absolute(word: str, package: str) -> str:
    """A name as imported in a package, without leading dots; "" for one beyond the package."""
    dots = len(word) - len(word.lstrip("."))
    if not dots:
        return word
    words = package.split(".") if package else []
    if dots - 1 > len(words):
        return ""
    return ".".join([*words[: len(words) - dots + 1], *filter(None, [word.lstrip(".")])])


def _identity(file: Path) -> tuple[str, int, int, int]:
    """A file and the state of its content."""
    there = os.stat(file)
    return str(file), there.st_mtime_ns, there.st_ctime_ns, there.st_size


@lru_cache(maxsize=1024)
def _imports(file: str, *state: int) -> tuple[str, tuple[str, ...]]:
    """The SHA-256 of a file, and the names that it imports, with dots before relative ones."""
    content = Path(file).read_bytes()
    names: list[str] = []
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        tree = ast.Module([], [])
    for step in ast.walk(tree):
        if isinstance(step, ast.Import):
            names += [each.name for each in step.names]
        elif isinstance(step, ast.ImportFrom):
            base = "." * step.level + (step.module or "")
            dot = "" if not step.module else "."
            names += [base, *(f"{base}{dot}{each.name}" for each in step.names if each.name != "*")]
    return hashlib.sha256(content).hexdigest(), tuple(dict.fromkeys(names))
