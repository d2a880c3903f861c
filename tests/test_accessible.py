"""Every page that Fedge writes, looked at as keyboard and screen reader see it."""

import re

import pytest
from accessible import contrast, faults
from run_folders import round_result, write_run

from fedge.console.palette import SERIES, css_variables
from fedge.records.reading.reader import load_run
from fedge.report.clock_page import write_clock_page
from fedge.report.comparison.page import write_comparison
from fedge.report.run_page import write_report
from fedge.rounds.measurements.moment import VersionRow

ROUNDS = [
    round_result(1, [5, 6, 7, 8], similarity=0.9),
    round_result(2, [9, 10, None, 10], labels=(0, 1), similarity=0.2),
]
MOMENT = VersionRow(
    1, 10.0, 4, 20, 25, None, None, 1_000_000, 2_000_000, 0, 0, 1.5, 0.9, 0.1, 0.25, 50, at_work=9, places=10
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """HTML by name: the report of a run, the comparison of two, the page of the clock."""
    folder = tmp_path_factory.mktemp("pages")
    runs = [write_run(folder / name, ROUNDS) for name in ("one", "other")]
    report = write_report(runs[0])
    write_comparison([load_run(run) for run in runs], folder / "compare.html")
    write_clock_page([MOMENT], ["made up"], folder / "clock.html")
    return {path.stem: path.read_text() for path in (report, folder / "compare.html", folder / "clock.html")}


@pytest.mark.parametrize("name", ["report", "compare", "clock"])
def test_pages_have_names_order_and_targets(pages, name):
    assert faults(pages[name]) == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_and_marks_be_seen(dark):
    """Text has a contrast of 4.5 at least, borders and focus one of 3."""
    colours = css_variables(dark)
    for text in ("--ink", "--grey"):
        assert contrast(colours[text], colours["--paper"]) >= 4.5, text
    for mark in ("--blue", "--vermillion", "--green"):
        assert contrast(colours[mark], colours["--paper"]) >= 3, mark


def test_neighbouring_lines_differ_in_more_than_colour(pages):
    """A key says in words whose a line is, and a table beside the figure has its numbers."""
    assert len({name for name, *_ in SERIES}) == len(SERIES)
    figures = re.findall(r"<figure data-points.*?</figure>", pages["report"], re.DOTALL)
    assert figures
    for figure in figures:
        assert re.search(r"<li><svg[^>]*>.*?</svg><span>[^<]+</span>", figure)
        assert "<summary>Numbers</summary>" in figure


PLANTED = {
    '<html lang="en">': "<html>",
    "<h1>": "<h2>",
    ' role="img"': "",
    ' scope="col"': "",
    '<div class="scroll" tabindex="0"': '<div class="scroll"',
    '<section id="': '<section id="x',
    "<main>": "<div>",
    '<nav aria-label="Sections">': "<nav>",
}


@pytest.mark.parametrize("words", PLANTED)
def test_each_fault_is_found(pages, words):
    assert words in pages["report"]
    assert faults(pages["report"].replace(words, PLANTED[words]))


def test_contrast_by_hand():
    """Black on white 21; #767676 on white 4.54, the lightest grey that passes."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.01)
