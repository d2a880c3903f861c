"""Mutants: what is changed, by hand, and whether real tests notice it."""

from pathlib import Path

import pytest

from tools import mutants
from tools.mutants import mutants_of

SOURCE = '''
"""Docstring of 3 > 2."""
LIMIT = 4


def f(x: "int | 5", y: int = 7) -> bool:
    """Whether 1 < 2."""
    if not x and y:
        raise ValueError(1 + 1)
    s = f"{3 + 4}"
    return x * 2 <= len(s) is True
'''


def changes(source):
    return [(m.line, m.before, m.after) for m in mutants_of(Path("m.py"), source.encode())]


def test_mutants_by_hand():
    """Of the body alone: no annotation, default, docstring, message or raised error."""
    assert changes(SOURCE) == [
        (8, "not x and y", "(not x or y)"),
        (8, "not x", "(x)"),
        (11, "x * 2 <= len(s) is True", "(x * 2 < len(s) is True)"),
        (11, "x * 2", "(x / 2)"),
        (11, "2", "3"),
        (11, "True", "False"),
    ]


def test_a_change_is_made_at_its_place_also_behind_wide_letters():
    source = "def f(a):\n    return 'Δ', a < 1\n".encode()
    (comparison, number) = mutants_of(Path("m.py"), source)
    assert comparison.applied(source).decode() == "def f(a):\n    return 'Δ', (a <= 1)\n"
    assert number.applied(source).decode() == "def f(a):\n    return 'Δ', a < 2\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A small repository with a module and its test; mutants are made in a copy."""
    root = tmp_path / "root"
    for parts, text in {
        ("fedge", "__init__.py"): "",
        ("fedge", "leaf", "__init__.py"): "",
        (
            "fedge",
            "leaf",
            "sizes.py",
        ): "def is_large(x):\n    return x > 3\n\n\ndef twice(x):\n    return x * 2\n",
        ("tests", "fedge", "leaf", "test_sizes.py"): (
            "from fedge.leaf import sizes\n\n\n"
            "def test_large():\n    assert [sizes.is_large(x) for x in (2, 5)] == [False, True]\n"
            "    assert sizes.twice(3) == 6\n"
        ),
    }.items():
        root.joinpath(*parts).parent.mkdir(parents=True, exist_ok=True)
        root.joinpath(*parts).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", root)
    return root


@pytest.mark.slow
def test_survivors_are_those_that_no_test_notices(place):
    """Tests at 2 and 5 do not see whether 3 is within the limit; they see what is twice a number."""
    module = place / "fedge" / "leaf" / "sizes.py"
    before = module.read_bytes()
    every = list(mutants_of(module, before))
    left = [(m.before, m.after) for m in (every[0], every[2]) if mutants.survives(m, place)]
    assert left == [("x > 3", "(x >= 3)")]
    assert [(m.before, m.after) for m in every] == [
        ("x > 3", "(x >= 3)"), ("3", "4"), ("x * 2", "(x / 2)"), ("2", "3"),
    ]  # fmt: skip
    assert module.read_bytes() == before


@pytest.mark.slow
def test_tests_of_another_room_that_import_the_module_notice_too(place):
    module = place / "fedge" / "leaf" / "sizes.py"
    other = place / "tests" / "fedge" / "cloud" / "test_limit.py"
    other.parent.mkdir()
    other.write_text(
        "from fedge.leaf.sizes import is_large\n\n\ndef test_three():\n    assert not is_large(3)\n"
    )
    other.with_name("test_none.py").write_text("from fedge.leaf import other\n")
    assert mutants.tests_of(module)[-1] == [other]
    strict = next(m for m in mutants_of(module, module.read_bytes()) if m.after == "(x >= 3)")
    assert not mutants.survives(strict, place)


def test_what_is_no_module_is_refused():
    with pytest.raises(SystemExit, match="nowhere is no room or module"):
        mutants.modules(["nowhere"])
    (module,) = mutants.modules(["leaf/strategies/checks.py"])
    assert len(list(mutants_of(module, module.read_bytes()))) > 9
