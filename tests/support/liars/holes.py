"""Holes in a boundary, one per check: each `raise` of a module taken out in turn, as if it were not written.

A judge of lies is worth the holes that it finds. Which check has refused a lie is seen by where it was
raised: the same lie is told once more without that check alone. Where another stands behind, it stays out.
"""

import ast
import inspect
import traceback
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Hole:
    """A check that can be taken out of a module.

    Attributes:
        module: that has it.
        number: of its `raise` in the module, from the top.
        name: the function, and what it says.
        lines: first and last of the `raise`.
        reached: lies that it has refused.
        let_in: the first lie that nobody could have told honestly and that got in; empty for none.
    """

    module: types.ModuleType
    number: int
    name: str
    lines: tuple[int, int]
    reached: int = 0
    let_in: str = ""
    _functions: list = field(default_factory=list, repr=False)
    _codes: dict = field(default_factory=dict, repr=False)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Take the check out, and put it back."""
        self._codes = self._codes or _codes_of(compile(_tree(self.module, self.number)[0], "hole", "exec"))
        before = []
        try:
            for function in self._functions:
                if (code := self._codes.get(function.__qualname__)) is not None:
                    before.append((function, function.__code__))
                    function.__code__ = code
            yield
        finally:
            for function, code in before:
                function.__code__ = code


def holes_of(module, within=()):
    """A hole for each check of a module: those of the functions named, or all."""
    found, names, functions = [], Counter(), list(_functions(module))
    for number, (name, words, lines) in enumerate(_tree(module, None)[1]):
        if not within or name.split(".")[-1] in within:
            told = f"{name}: {words}"
            names[told] += 1
            found.append(
                Hole(
                    module, number, told + f" {names[told]}" * (names[told] > 1), lines, _functions=functions
                )
            )
    return found


def hole_of(error, holes):
    """The hole whose check has raised an error, or what led to it; None for another one."""
    while error is not None:
        frames = list(traceback.walk_tb(error.__traceback__))
        file, line = frames[-1][0].f_code.co_filename, frames[-1][1]
        for hole in holes:
            if file == inspect.getsourcefile(hole.module) and hole.lines[0] <= line <= hole.lines[1]:
                return hole
        error = error.__context__
    return None


def _tree(module, number):
    """A module's tree without one of its checks, and (function, words, lines) of all of them."""
    tree = ast.parse(Path(inspect.getsourcefile(module)).read_text())
    taken_out = _TakenOut(number)
    return ast.fix_missing_locations(taken_out.visit(tree)), taken_out.seen


class _TakenOut(ast.NodeTransformer):
    """Takes one `raise` out."""

    def __init__(self, number):
        self.number, self.seen, self._within = number, [], []

    def _named(self, node):
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()
        return node

    visit_FunctionDef = visit_ClassDef = _named

    def visit_Raise(self, node):
        if node.exc is None or any(isinstance(n, ast.Name) and n.id == "error" for n in ast.walk(node)):
            return node  # hands another's refusal on
        texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        lines = (node.lineno, node.end_lineno)
        self.seen.append((".".join(self._within), texts[0] if texts else ast.unparse(node), lines))
        if self.number != len(self.seen) - 1:
            return node
        return ast.Pass()


def _codes_of(code, prefix=""):
    """Qualified name → code of each function of a compiled module or class."""
    found = {}
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            name = f"{prefix}{each.co_name}"
            found[name] = each
            found |= _codes_of(each, f"{name}.")
    return found


def _functions(module):
    """All functions and methods that a module defines, without what is wrapped around them."""
    for value in list(vars(module).values()):
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            yield inspect.unwrap(value)
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            for method in vars(value).values():
                method = getattr(method, "__func__", method)
                if inspect.isfunction(method) and method.__module__ == module.__name__:
                    yield inspect.unwrap(method)
