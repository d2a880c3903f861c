"""Errors of a user's code name the user's own line."""

import ast
import re
from pathlib import Path

import pytest

from fedge.config.registers.failing import current_user_line, own_error, place
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import GATES
from fedge.process.background_jobs import BackgroundJob

ROOT = Path(__file__).parents[4]


def _failure(code, **known):
    """The error of a code's function `part`, of a file of the user's."""
    exec(compile(code, "/home/me/my_part.py", "exec"), known)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any
        known["part"]()
    return caught.value


def test_kind_words_and_line():
    error = _failure("def part():\n    raise ValueError('two\\n lines')\n")
    assert own_error(error) == "ValueError: two lines (/home/me/my_part.py, line 2)"


@pytest.mark.parametrize("raised", ["RuntimeError('again')", "SystemExit(3)", "KeyboardInterrupt"])
def test_an_error_that_cannot_be_told_is_told(raised):
    known = {}
    exec(f"class Odd(Exception):\n    def __str__(self):\n        raise {raised}", known)
    error = _failure("def part():\n    raise Odd('words')\n", Odd=known["Odd"])
    assert own_error(error) == "Odd: its message cannot be told (/home/me/my_part.py, line 2)"


def test_the_users_line_is_named_not_that_of_a_package():
    """PyTorch's line is deeper, but says nothing to the user."""
    error = _failure("import torch\n\n\ndef part():\n    torch.nn.functional.conv1d(1, 2)\n")
    assert place(error) == " (/home/me/my_part.py, line 5)"


def test_an_error_elsewhere_has_no_place():
    assert place(ValueError("of nowhere")) == ""
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("x")
    caught.value.__traceback__ = None
    assert own_error(caught.value) == "ValueError: invalid literal for int() with base 10: 'x'"


def test_every_error_of_a_part_is_told_with_its_place():
    """No part's error is put into a message by its kind and words alone."""
    elsewhere = {  # files and messages of others, not code of the user's
        "fedge/data/own_windows.py", "fedge/datasets/columns.py", "fedge/datasets/images.py",
        "fedge/devices/population/convert.py", "fedge/inference/export.py", "fedge/link/frames.py",
        "fedge/run/preparation/parts.py", "fedge/sweep/searching.py", "fedge/sweep/study.py",
    }  # fmt: skip
    found = set()
    for path in sorted((ROOT / "fedge").rglob("*.py")):
        for step in ast.walk(ast.parse(path.read_text())):
            if isinstance(step, ast.Raise) and re.search(r"type\(error\)\.__name__", ast.unparse(step)):
                found.add(str(path.relative_to(ROOT)))
    assert found == elsewhere


def test_an_end_of_the_process_has_a_place():
    error = _failure("def part():\n    raise SystemExit\n")  # as sys.exit(), which wandb replaces
    assert own_error(error) == "SystemExit (/home/me/my_part.py, line 2)"


def test_who_tells_errors_of_a_part_tells_sys_exit_too():
    """A handler of `Exception` around a user's code would let its sys.exit() end the run."""
    found = [
        f"{path.relative_to(ROOT)}:{handler.lineno}"
        for path in sorted((ROOT / "fedge").rglob("*.py"))
        for handler in ast.walk(ast.parse(path.read_text()))
        if isinstance(handler, ast.ExceptHandler)
        if "own_error(" in ast.unparse(handler)
        and ast.unparse(handler.type) in ("Exception", "BaseException")
    ]
    assert found == []


class Panic(BaseException):
    """Like the panics of Polars, tokenizers and other libraries in Rust."""


@pytest.mark.parametrize("error", [Panic("full"), SystemExit(3), ValueError("no")])
def test_all_that_own_code_raises_is_told(error):
    """A panic is no Exception; it would end the run with a traceback."""
    words = f"gate.rule mine:panics failed: {type(error).__name__}"
    with pytest.raises(ConfigError, match=words), GATES.explaining_errors("mine:panics"):
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()])
def test_an_interruption_is_no_error_of_own_code(error):
    with pytest.raises(type(error)), GATES.explaining_errors("mine:interrupted"):
        raise error


PART = "def part():\n    return tell()\n"


def test_where_own_code_stands_is_told_of_what_fedge_has_called():
    """In any thread; a script that calls Fedge is none that Fedge waits for."""
    found, known = [], {"tell": current_user_line}
    exec(compile(PART, "/home/me/my_part.py", "exec"), known)
    with BackgroundJob() as behind:
        behind.begin(lambda: found.append(known["part"]()))
    assert found == ["/home/me/my_part.py, line 2"]
    assert known["part"]() == ""
