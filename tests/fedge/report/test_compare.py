"""`fedge.compare` as Jupyter shows it; its numbers are tested with the page, in comparison/."""

import polars as pl
from run_folders import round_result, write_run

import fedge


def test_a_comparison_is_a_table_by_metric(tmp_path):
    """Two groups of two seeds: means 0.8 and 0.9, differences 0.1 and 0.1; each metric once."""
    folders = [
        write_run(
            tmp_path / f"{name}-seed{seed}", [round_result(1, rights)], seed=seed, config={"train.lr": lr}
        )
        for name, lr, rights in (("a", 0.1, [8] * 4), ("b", 0.2, [9] * 4))
        for seed in (1, 2)
    ]
    numbers = fedge.compare(folders)
    assert isinstance(numbers, pl.DataFrame)
    page = numbers._repr_html_()
    assert page.count("<td>mean test accuracy</td>") == 1
    assert page.count("(n = 2)</th>") == 2
    assert "<td>0.8 ± 0</td><td>0.9 ± 0; +0.1 (0.1 to 0.1)</td>" in page
    assert (
        "shape:" in numbers.filter(pl.col("group") == "nobody")._repr_html_()
    )  # a part is a frame like others


def test_runs_that_reached_no_end_are_said(tmp_path):
    assert fedge.compare([write_run(tmp_path / "none", [])])._repr_html_() == (
        "<p>no run has reached its last round</p>"
    )
