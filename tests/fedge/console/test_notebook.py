"""The bar of a notebook, state by state; in a real kernel it is shown by tests/runs/use/test_notebooks.py."""

import io
import re

import pytest

from fedge.console.notebook import NotebookConsole, bar, in_notebook
from fedge.exchange.clients import ExchangeProgress

TRAINING = ExchangeProgress("train", frozenset({0, 1, 2}), frozenset({0}), frozenset())


@pytest.fixture(name="screen")
def fixture_screen():
    """Output of a cell: lines, and one display that is replaced."""

    class Shown:
        def __init__(self):
            self.lines, self.pages, self.displays, self.now = io.StringIO(), [], 0, 0.0

        def show(self, page):
            self.displays += 1
            self.pages.append(page)
            return self.pages.append

        def console(self, rounds):
            return NotebookConsole(self.lines, rounds, self.show, lambda: self.now)

    return Shown()


def test_a_run_is_one_bar_and_no_line_per_round(screen, make_result):
    console = screen.console(3)
    console.say("Fedge: a run")
    console.phase("waiting for clients")
    for number in (1, 2, 3):
        screen.now += 1.0
        console.follow(lambda: TRAINING)
        screen.now += 1.0
        console.round(make_result(global_round=number), 2.0)
    console.close()
    console.say("all 3 clients")
    assert screen.lines.getvalue() == "Fedge: a run\nall 3 clients\n"
    assert screen.displays == 1
    values = [int(re.search(r'value="(\d)"', page)[1]) for page in screen.pages]
    assert values == sorted(values)
    assert (values[0], values[-1]) == (0, 3)
    assert "round 3/3" in screen.pages[-1]
    assert "clients back" not in screen.pages[-1]
    assert any("train: 1 of 3 clients back" in page for page in screen.pages)


def test_it_is_replaced_at_most_twice_a_second(screen):
    console = screen.console(3)
    console.phase("waiting for clients")
    for _ in range(100):
        screen.now += 0.01
        console.tick()
    assert len(screen.pages) <= 4


def test_a_bar_that_cannot_be_shown_is_not_the_end(make_result, caplog):
    def broken(page):
        raise RuntimeError("no front end")

    stream = io.StringIO()
    console = NotebookConsole(stream, 1, broken)
    console.phase("waiting")
    console.round(make_result(global_round=1), 2.0)
    console.close()
    console.say("the end")
    assert stream.getvalue() == "the end\n"
    assert "the bar fails: RuntimeError: no front end" in caplog.text


def test_words_are_text():
    assert "<b>" not in bar(0, 1, "<b>", None)


def test_a_terminal_is_no_notebook():
    assert not in_notebook(io.StringIO())
