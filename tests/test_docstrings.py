"""Promises of docstrings: shapes and dtypes of arrays, units, listed names, examples that run."""

import ast
import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedge.config.registers import parts
from fedge.config.registers.register import Register

ROOT = Path(__file__).parents[1]
SOURCES = [file for top in ("fedge", "hhar") for file in sorted((ROOT / top).rglob("*.py"))]
ARRAYS = re.compile(r"\b(ndarray|NDArray|Tensor|Matrix)\b")
SHAPE = re.compile(r"\([^()]*,[^()]*\)|\([A-Z]\)|shape|dtype|u?int\d|float\d")  # (N, C, T), (S,), …

# what a name says of its unit → how a docstring says it
UNITS = {
    r"(^|_)(seconds|timeout|elapsed|duration|delay)(_|$)|_s$": r"\bseconds?\b|(?<![\w'])s\b|\bminutes?\b",
    r"(^|_)n?bytes(_|$)": r"\bbytes?\b|\bMB\b|\bMiB\b",
    r"_mib$": r"\bMiB\b",
    r"_mb$": r"\bMB\b|10\^6 bytes",
    r"(^|_)(hz|rate)(_|$)": r"\bHz\b|\bper second\b",
}
LISTED = re.compile(r"^(Args|Attributes):\n((?:    .*\n|\n)*)", re.MULTILINE)  # sections of a docstring
SECTION = re.compile(r"^(?:Args|Attributes|Raises|Warns):\n((?:    .*\n?|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^    ([\w* ]+(?:, [\w* ]+)*):(?= |$)", re.MULTILINE)

# parts of one register have one signature, which their room documents once, as fedge.clustering.registry does
REGISTERED = {
    entry.code for register in vars(parts).values() if isinstance(register, Register) for entry in register
}

# public functions of the field: formula, source, example
WITH_EXAMPLE = {
    "fedge.clustering.likeness.similarity": [
        "cosine_similarity",
        "threshold_components",
        "weight_clustering",
    ],
    "fedge.config.topology": ["clients_per_leaf", "unseen_ids"],
    "fedge.data.split": ["split_by_blocks"],
    "fedge.metrics.agreement": ["agreement", "churn"],
    "fedge.metrics.scores": ["accuracy", "macro_f1", "score_spread"],
    "fedge.serving.gate": ["published"],
    "fedge.states.averaging": ["weighted_mean"],
    "fedge.training.scaffold": ["control_delta", "correction", "updated_server_control"],
    "fedge.training.schedule": ["local_training"],
}


def public_functions(body: list[ast.stmt], within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the public functions and methods of a module by name."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body, f"{node.name}.")
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield within + node.name, node


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_functions_on_arrays_say_their_shape_or_dtype(file: Path) -> None:
    """A `State` is said once, at its definition: name → array of any shape and dtype."""
    module = ".".join(file.with_suffix("").relative_to(ROOT).parts)
    for name, function in public_functions(ast.parse(file.read_text(encoding="utf-8")).body):
        if f"{module}:{name}" in REGISTERED:
            continue
        arguments = [*function.args.args, *function.args.kwonlyargs]
        types = [ast.unparse(argument.annotation) for argument in arguments if argument.annotation]
        types += [ast.unparse(function.returns)] if function.returns else []
        if any(ARRAYS.search(kind) for kind in types):
            words = ast.get_docstring(function) or ""
            assert SHAPE.search(words), f"{name} takes or returns arrays; say their shape and dtype"


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_functions_say_their_units(file: Path) -> None:
    """Of parameters and functions whose name says that they are seconds, bytes or Hz."""
    module = ".".join(file.with_suffix("").relative_to(ROOT).parts)
    for name, function in public_functions(ast.parse(file.read_text(encoding="utf-8")).body):
        words = ast.get_docstring(function) or ""
        arguments = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
        for subject in (*arguments, function.name) if f"{module}:{name}" not in REGISTERED else ():
            for says, unit in UNITS.items():
                if re.search(says, subject):
                    assert re.search(unit, words, re.IGNORECASE), f"{name}: in what unit is {subject}?"


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_what_a_docstring_lists_is_there(file: Path) -> None:
    """Args are parameters, Attributes are fields, properties or what methods set."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for section, entries in LISTED.findall(f"{ast.get_docstring(node)}\n"):
                listed = {name.strip(" *") for names in ENTRY.findall(entries) for name in names.split(",")}
                missing = listed - (parameters(node) if section == "Args" else members(node))
                assert not missing, f"{node.name} has no {', '.join(missing)}"


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_each_entry_of_a_list_begins_with_its_name(file: Path) -> None:
    """The second line of an entry is indented further; otherwise the API's pages take it for an entry."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for section in SECTION.findall(ast.get_docstring(node) or ""):
            beginnings = re.findall(r"^    \S.*", section, re.MULTILINE)
            assert [line for line in beginnings if not re.match(r"    [\w*., ]+:( |$)", line)] == []


def parameters(node: ast.ClassDef | ast.FunctionDef) -> set[str]:
    """The parameters of a function, or of a class's `__init__` and its fields."""
    if isinstance(node, ast.ClassDef):
        inits = [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
        fields = {inner.target.id for inner in node.body if isinstance(inner, ast.AnnAssign)}
        return fields.union(*(parameters(inner) for inner in inits if inner.name == "__init__"))
    taken = [
        *node.args.posonlyargs,
        *node.args.args,
        *node.args.kwonlyargs,
        node.args.vararg,
        node.args.kwarg,
    ]
    return {argument.arg for argument in taken if argument is not None}


def members(node: ast.AST) -> set[str]:
    """Names that a class declares, defines, or sets on its objects."""
    found = set()
    for inner in ast.walk(node):
        match inner:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return found


@pytest.mark.parametrize(
    "module",
    [
        ".".join(file.with_suffix("").relative_to(ROOT).parts)
        for file in SOURCES
        if ">>> " in file.read_text(encoding="utf-8")
    ],
)
def test_examples_run(module: str) -> None:
    """Every example in a docstring gives what it says."""
    done = doctest.testmod(importlib.import_module(module))
    assert done.attempted > 0
    assert done.failed == 0


@pytest.mark.parametrize("module", WITH_EXAMPLE)
def test_the_field_s_functions_have_an_example(module: str) -> None:
    """They are what a reader tries first."""
    for name in WITH_EXAMPLE[module]:
        assert ">>> " in (getattr(importlib.import_module(module), name).__doc__ or ""), name
