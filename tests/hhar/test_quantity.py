"""Numbers with their nouns; and no sentence of a program that says "1 clients"."""

import ast
import re
from pathlib import Path

import pytest

from hhar.quantity import quantity

ROOT = Path(__file__).parents[2]
# things of which a run may have one
COUNTED = (
    *("arrival", "channel", "class", "client", "cluster", "core", "device", "entry", "error", "evaluation"),
    *("event", "group", "image", "job", "leaf", "model", "note", "offer", "owner", "place", "round", "row"),
    *("run", "sample", "server", "setting", "step", "trial", "update", "user", "version", "window", "worker"),
)
# a number that is never one, or no number: file, and the words after it
EXEMPT = {
    ("fedge/clustering/deal_test/reach.py", "leaves on,"),  # fewest leaves of a test
    ("fedge/clustering/deal_test/auto.py", "leaves and"),
    ("fedge/clustering/deal_test/auto.py", "clients on"),
    ("fedge/doctor/gpu_check.py", "clients, steps"),
    ("fedge/doctor/gpu_check.py", "clients at"),
    ("fedge/exchange/schema.py", "windows"),  # training windows, test windows
    ("fedge/data/outliers.py", "windows"),
    ("fedge/inference/models.py", "models differ:"),  # two or more
    ("fedge/report/comparison/page.py", "groups"),
    ("fedge/report/sections/accuracy.py", "leaves: median,"),  # many
    ("fedge/report/sections/data.py", "devices"),
    ("fedge/report/sections/timeline.py", "workers."),
    ("fedge/report/sections/clustering.py", "leaves sent"),
    ("fedge/report/sections/data.py", "windows"),  # training windows, test windows
    ("fedge/data/order.py", "windows,"),  # a mean
    ("fedge/doctor/gpu_check.py", "cores"),
    ("fedge/launch/leaf_servers/subtree.py", "runs the"),  # a verb
    ("fedge/native/operations.py", "steps to"),
    ("fedge/run/announce.py", "users out"),
    ("hhar/windows/window_file.py", "channels of"),
    ("fedge/console/lines.py", "clients"),  # of `_everybody`
    ("fedge/training/device_speeds.py", "steps per"),
    ("fedge/run/preparation/shortfalls.py", "windows stays"),  # at least three
    ("fedge/run/preparation/shortfalls.py", "windows are"),  # a fifth of them, and of many
    ("fedge/leaf/trial.py", "on windows"),  # after a model's name
    ("fedge/data/partition.py", "windows of"),  # at least three
    ("fedge/data/partition.py", "without windows of"),  # after a number with its noun
    ("hhar/windows/window_file.py", "entries: cut"),  # the longest of several
}


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "leaf", "1 leaf"), (2, "leaf", "2 leaves"), (0, "global round", "0 global rounds"),
        (1, "class", "1 class"), (3, "class", "3 classes"), (2, "entry", "2 entries"),
        (2, "leaf server", "2 leaf servers"),
    ],
)  # fmt: skip
def test_quantity(number, noun, said):
    assert quantity(number, noun) == said


def test_quantity_of_thousands():
    assert quantity(1944, "window") == "1944 windows"
    assert quantity(1944, "window", separated=True) == "1,944 windows"


def _sentences(tree):
    """Pairs of a value and the text after it, of all f-strings outside errors."""
    raised = {id(part) for step in ast.walk(tree) if isinstance(step, ast.Raise) for part in ast.walk(step)}
    for text in ast.walk(tree):
        if isinstance(text, ast.JoinedStr) and id(text) not in raised:
            for value, after in zip(text.values, text.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                    yield value, str(after.value)


def _plurals(path):
    """Words after a number in a file's sentences that are right for several things only."""
    nouns = "|".join(quantity(2, noun).removeprefix("2 ") for noun in COUNTED)
    found = []
    for value, after in _sentences(ast.parse(path.read_text())):
        if match := re.match(
            rf" (?!of|over|several|or|and)(?:[a-z]+ )?(?:{nouns})\b\S*(?: [a-z]+)?\S*", after
        ):
            found.append(match[0].strip())
        is_sum = isinstance(value.value, ast.BinOp) and isinstance(value.value.left, ast.Constant)
        if is_sum and value.value.left.value == "s":
            found.append("s" + after[:20])
    return found


def test_numbers_have_nouns_in_their_form():
    """`quantity` says what is counted, where the number may be one; also no "round{'s' * (n > 1)}"."""
    wrong = {
        (str(path.relative_to(ROOT)), words)
        for room in ("fedge", "hhar")
        for path in sorted((ROOT / room).rglob("*.py"))
        for words in _plurals(path)
    }
    assert wrong - EXEMPT == set()
    assert EXEMPT - wrong == set()  # none that nothing needs
