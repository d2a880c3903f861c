"""Modules, names, files and tests that pages and comments cite, and whether they are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PACKAGES = ("fedge", "hhar", "studies", "tools", "benchmarks")
SOURCES = (*PACKAGES, "tests", "examples", "configs")
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml", "mkdocs.yml")

_NAME = re.compile(rf"(?<![\w./:\"-])(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+(?![\w-]*/)")
_ENDINGS = "py|toml|md|json|svg|html|css|yml|c|ipynb"
_FILE = re.compile(
    rf"(?<![\w/.-])((?:{'|'.join((*SOURCES, 'docs'))})/[\w./-]+\.(?:{_ENDINGS}))\b(?:::(\w+))?"
)
_TEST = re.compile(r"(?<![\w/])((?:runs|fedge|hhar|studies)/[\w/]*test_\w+\.py)?(?:::|`)(test_\w+)")
_MADE_UP = ("test_pages.py", "test_security.py")  # whose examples are not there on purpose
_PLACEHOLDER = re.compile(r"\b(NAME|ROOM|MODULE|to_NAME|test_MODULE)\b")


def texts() -> Iterator[tuple[Path, str]]:
    """Yield every page and source with its text; the list of changes speaks of what was."""
    files = [ROOT / name for name in ROOT_PAGES] + sorted((ROOT / "docs").glob("*.md"))
    for top in SOURCES:
        files += sorted((ROOT / top).rglob("*.py")) + sorted((ROOT / top).rglob("*.toml"))
    for file in files:
        if file.exists() and file.name not in _MADE_UP:
            yield file, file.read_text(encoding="utf-8")


def names(text: str) -> Iterator[str]:
    """Yield the dotted names of the project's packages in a text: ``fedge.states.averaging``."""
    for name in _NAME.findall(text):
        last = name.rpartition(".")[2]
        if not re.fullmatch(rf"({_ENDINGS}|npz|csv|log|whl)|__\w+__", last) and not _PLACEHOLDER.search(name):
            yield name


def files(text: str) -> Iterator[tuple[str, str]]:
    """Yield the files in a text, with the test in them that is named behind ``::``, or nothing."""
    for path, test in _FILE.findall(text):
        if not _PLACEHOLDER.search(path):
            yield path, test


def tests(text: str) -> Iterator[tuple[str, str]]:
    """Yield the tests in a text: their file under tests/, or nothing, and the function."""
    yield from _TEST.findall(text)


def is_there(dotted: str) -> bool:
    """Tell whether a dotted name is a module, or something that a module or class in it defines."""
    first, *rest = dotted.split(".")
    place = ROOT / first
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    module = place / "__init__.py"
    if rest and (place / f"{rest[0]}.py").exists():
        module = place / f"{rest.pop(0)}.py"
    known = _defined(module) if module.exists() else {}
    for part in rest:
        if part not in known:
            return False
        known = known[part]
    return module.exists()


@cache
def _defined(module: Path) -> dict[str, Any]:
    """The names of a module, each with those of the class that it is."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    lazily = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "submod_attrs"
        for found in ast.literal_eval(node.value).values()
        for name in found
    ]
    return _names_of(tree) | {name: {} for name in lazily}


def _names_of(scope: ast.AST) -> dict[str, Any]:
    """The names that a module or class binds, at whatever depth but that of other classes."""
    found: dict[str, Any] = {}
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.ClassDef):
            found[node.name] = _names_of(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = {}
            found |= {name: {} for name in _of_self(node)}
        else:
            bound = (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            imported = (
                alias.asname or alias.name for alias in ast.walk(node) if isinstance(alias, ast.alias)
            )
            found |= {name: {} for name in (*bound, *imported)}
    return found


def _of_self(method: ast.AST) -> Iterator[str]:
    """Yield the attributes that a method sets on its object."""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node.attr
