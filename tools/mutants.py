"""Mutants of the code behind results: one small change at a time; do the tests notice it?

python -m tools.mutants                          50 mutants, drawn over the rooms of `ROOMS`
python -m tools.mutants leaf cloud --number 200  in two rooms
python -m tools.mutants leaf/norms.py --all      all of a module

The tests of a mutant are those of its module, of its room, and others importing the module. If all pass, the
mutant survives and is listed: a test is missing, or the change makes no difference. Mutants are made in a
copy of the repository.
"""

import argparse
import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("rounds", "leaf", "cloud", "clustering", "states", "training")
MOST_S = 300.0  # seconds for the tests of a mutant; if they take longer, it is noticed
_REPLACEMENTS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A changed piece of a module.

    Attributes:
        path: path of the module.
        line: line of the piece, from 1.
        start, end: its place, in bytes of the file.
        before, after: the piece and its change.
    """

    path: Path
    line: int
    start: int
    end: int
    before: str
    after: str

    def applied(self, source: bytes) -> bytes:
        """The module with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants_of(path: Path, source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its text.

    Comparisons, arithmetic, `and` and `or`, `not`, whole numbers and truth values in functions are changed.
    Annotations, defaults, messages and errors are not.
    """
    line_starts = [0]
    for text in source.splitlines(keepends=True):
        line_starts.append(line_starts[-1] + len(text))
    for node in _mutable_expressions(ast.parse(source)):
        for changed in _changes(node):
            start = line_starts[node.lineno - 1] + node.col_offset
            end = line_starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            before = source[start:end].decode()
            after = changed if isinstance(changed, str) else f"({ast.unparse(changed)})"
            yield Mutant(path, node.lineno, start, end, before, after)


def _mutable_expressions(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions in bodies of functions, in the order of the text."""
    expressions = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                expressions += [node for node in ast.walk(statement) if isinstance(node, ast.expr)]
    distinct = {id(node): node for node in expressions}  # functions in functions come twice
    skipped = {id(part) for node in ast.walk(tree) for part in _excluded_parts(node)}
    kept = [node for node in distinct.values() if id(node) not in skipped]
    yield from sorted(kept, key=lambda node: (node.lineno, node.col_offset))


def _excluded_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node without effect on results."""
    if isinstance(node, ast.FunctionDef):
        for part in (*node.args.defaults, *node.args.kw_defaults, node.returns, *_annotations(node.args)):
            yield from ast.walk(part) if part is not None else ()
    elif isinstance(node, ast.AnnAssign):
        yield from ast.walk(node.annotation)
    elif isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
        yield from ast.walk(node)


def _annotations(arguments: ast.arguments) -> list[ast.expr | None]:
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [
        parameter.annotation
        for parameter in (*parameters, arguments.vararg, arguments.kwarg)
        if parameter is not None
    ]


def _changes(node: ast.expr) -> Iterator[ast.expr | str]:
    """Changes of an expression."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _REPLACEMENTS:
        changed = copy.deepcopy(node)
        changed.ops[0] = _REPLACEMENTS[type(node.ops[0])]()
        yield changed
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _REPLACEMENTS:
        other = copy.deepcopy(node)
        other.op = _REPLACEMENTS[type(node.op)]()
        yield other
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield str(node.value + 1)


def tests_of(path: Path) -> list[list[Path]]:
    """Tests of a module, nearest first: of its own name, of its room, others importing it."""
    room = path.parent.relative_to(ROOT)
    own_tests = ROOT / "tests" / room / f"test_{path.name}"
    folder = ROOT.joinpath("tests", *room.parts[:2])
    others = [test for test in importers(path) if not test.is_relative_to(folder)]
    nearest = [[tests] for tests in (own_tests, folder) if tests.exists()]
    return nearest + ([others] if others else [])


def importers(path: Path) -> list[Path]:
    """Test modules of fedge/ importing a module by name."""
    room, _, name = ".".join(path.relative_to(ROOT).with_suffix("").parts).rpartition(".")
    import_pattern = re.compile(rf"from {room}(\.{name} import| import .*\b{name}\b)")
    tests = sorted((ROOT / "tests" / "fedge").rglob("test_*.py"))
    return [test for test in tests if import_pattern.search(test.read_text(encoding="utf-8"))]


def survives(mutant: Mutant, place: Path) -> bool:
    """Whether the nearest tests pass with a mutant in a copy of the repository at `place`."""
    target = place / mutant.path.relative_to(ROOT)
    source = target.read_bytes()
    target.write_bytes(mutant.applied(source))
    try:
        return all(passes(tests, place) for tests in tests_of(mutant.path))
    finally:
        target.write_bytes(source)


def passes(tests: Sequence[Path], place: Path, within_s: float | None = MOST_S) -> bool:
    """Whether tests pass in the copy, within `within_s` seconds."""
    paths = [str(place / test.relative_to(ROOT)) for test in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *paths]
    variables = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        result = subprocess.run(
            command, cwd=place, env=variables, capture_output=True, check=False, timeout=within_s
        )
    except subprocess.TimeoutExpired:
        return False
    return result.returncode == 0


def copied(place: Path) -> None:
    """Copy the tracked files of the repository, and the built native step, to a folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name]
    built = [str(path.relative_to(ROOT)) for path in (ROOT / "fedge" / "native").glob("*.so")]
    for name in (*names, *built):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)


def modules(words: Sequence[str]) -> list[Path]:
    """Modules named by words: rooms, or files in them such as "leaf/norms.py"."""
    paths = []
    for word in words:
        path = ROOT / "fedge" / word
        if not path.exists():
            raise SystemExit(f"mutants: {word} is no room or module of fedge/")
        paths += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [path for path in paths if path.name != "__init__.py"]


def main(words: Sequence[str]) -> int:
    """Print the survivors; the exit code is 1 if the tests fail without any mutant."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants")
    parser.add_argument("places", nargs="*", default=list(ROOMS), metavar="ROOM", help="or a module in it")
    parser.add_argument("--number", type=int, default=50, help="of mutants, drawn by --seed (default: 50)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="every mutant")
    options = parser.parse_args(words)
    mutants = [mutant for path in modules(options.places) for mutant in mutants_of(path, path.read_bytes())]
    chosen = (
        mutants
        if options.all
        else random.Random(options.seed).sample(mutants, min(options.number, len(mutants)))
    )
    chosen.sort(key=lambda mutant: (mutant.path, mutant.start))
    with tempfile.TemporaryDirectory(prefix="fedge-mutants-") as folder:
        place = Path(folder).resolve()
        copied(place)
        tests_needed = dict.fromkeys(
            test for mutant in chosen for tests in tests_of(mutant.path) for test in tests
        )
        if not passes([test for test in tests_needed if test.is_dir()], place, None):
            print("mutants: the tests fail without any; fix them first")
            return 1
        survivors = []
        for number, mutant in enumerate(chosen, start=1):
            if survives(mutant, place):
                survivors.append(mutant)
                location = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
                print(
                    f"{number}/{len(chosen)}  survives  {location}  {mutant.before} -> {mutant.after}",
                    flush=True,
                )
    print(
        f"{len(chosen) - len(survivors)} of {len(chosen)} mutants noticed, of {len(mutants)} that there are"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
