"""The page of a clock without training, from rows by hand."""

from dataclasses import replace

from fedge.report.clock_page import COLUMNS, cells, clock_page, write_clock_page
from fedge.report.html.svg import figure_style
from fedge.rounds.measurements.moment import VersionRow

ROW = VersionRow(
    1, 10.0, 4, 20, 25, None, None, 1_000_000, 2_000_000, 0, 0, 1.5, 0.9, 0.1, 0.25, 50, at_work=9, places=10
)


def test_cells_stand_in_their_columns():
    found = dict(zip(COLUMNS, cells(ROW), strict=True))
    assert found == {
        "virtual s": 10.0, "versions": 4, "updates": 20, "jobs": 25, "staleness": 1.5, "at work": 9,
        "places used": 0.9, "lost": 0.1, "cut short": 0, "Gini": 0.25, "MB": 3.0,
    }  # fmt: skip


def test_two_levels_show_both():
    """Leaves and cloud are lines of their own; a moment before the first arrival is left out of one."""
    before = replace(ROW, virtual_s=5.0, mean_staleness=None, cloud_staleness=None)
    after = replace(ROW, cloud_up=100, leaf_versions=12, cloud_staleness=2.0)
    with figure_style():
        page = clock_page([before, after], ["made up"])
    (section,) = page.sections
    versions, staleness = section.panels[:2]
    assert list(versions.table.headers) == ["virtual s", "cloud", "leaves, together"]
    assert list(versions.table.rows[-1]) == ["10.0", "4", "12"]
    assert [list(row) for row in staleness.table.rows] == [["5.0000", "–", "–"], ["10.0", "1.5000", "2.0000"]]


def test_a_page_is_written(tmp_path):
    write_clock_page([ROW], ["made up"], tmp_path / "clock.html")
    html = (tmp_path / "clock.html").read_text()
    assert "Virtual clock, without training" in html
    assert "90.0 %" in html
