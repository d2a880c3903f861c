"""Trees on pages: how much of one is open, what a page shows of it."""

import pytest

from fedge.report.html.page import Page, PageSection, Panel, render
from fedge.report.html.tree import Branch, open_tiers


def tree(*children):
    """Cloud over regions, each over so many leaves."""
    regions = [
        Branch(f"region {n}", "0.5", below=[Branch(f"leaf {n}/{k}", "0.5") for k in range(count)])
        for n, count in enumerate(children)
    ]
    return Branch("cloud", "0.5", below=regions)


@pytest.mark.parametrize(
    ("most", "cloud", "region"), [(2, False, False), (3, True, False), (8, True, False), (9, True, True)]
)
def test_whole_tiers_are_open_as_long_as_their_rows_are_few(most, cloud, region):
    """1 + 2 + 6 rows."""
    made = open_tiers(tree(2, 4), most)
    assert (made.is_open, made.below[0].is_open, made.below[1].is_open) == (cloud, region, region)
    assert not made.below[0].below[0].is_open


def page_of(branch):
    section = PageSection("Servers", ["Words"], [Panel("Round 3", tree=branch, caption="How to read it")])
    return render(Page("run", ["lead"], "footer", sections=[section]))


def test_a_page_has_every_row_and_folds_what_is_below():
    html = page_of(open_tiers(tree(2, 4), 3))
    assert html.count("<details open><summary>") == 1
    assert html.count("<details><summary>") == 2
    assert all(f"<strong>leaf {path}</strong>" in html for path in ("0/0", "0/1", "1/3"))
    assert "How to read it" in html


def test_scores_have_bars_where_they_are_shares_and_clusters_a_colour():
    html = page_of(Branch("cloud", "0.25", share=0.25, marks=["took its <offer>"], cluster=1))
    assert 'style="width: 25.0%"' in html
    assert "border-left-color: var(--vermillion)" in html
    assert "took its &lt;offer&gt;" in html
    assert 'class="bar"' not in page_of(Branch("cloud", "12.5"))
