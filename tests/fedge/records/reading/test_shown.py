"""A run as Jupyter shows it."""

import re
from dataclasses import replace

from run_folders import round_result, write_run

from fedge.records.reading.reader import load_run
from fedge.records.reading.shown import html_table


def shown(folder):
    return load_run(folder)._repr_html_()


def test_a_run_is_a_line_and_a_row_per_leaf(tmp_path):
    """Of its newest round; rights 9, 10 and 10 of 10, one client failed."""
    rounds = [round_result(1, [5, 6, 7, 8]), round_result(2, [9, 10, None, 10], labels=(0, 1))]
    page = shown(write_run(tmp_path / "runs" / "a<b", rounds))
    assert "<b>a&lt;b</b>: completed, 2 of 2 rounds, test accuracy 0.9667, worst client 0.9000" in page
    heads = re.findall(r"<th>([^<]+)</th>", page)
    assert heads == ["leaf", "cluster", "clients", "test accuracy", "macro-F1", "gate"]
    rows = [re.findall(r"<td>([^<]*)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", page)]
    assert [row[:3] for row in rows] == [["0", "0", "2"], ["1", "1", "2"]]
    assert "<script" not in page


def test_a_run_without_rounds_and_one_that_failed(tmp_path):
    """Nothing is made up where nothing was measured."""
    run = load_run(write_run(tmp_path / "mine", []))
    assert "0 of" in run._repr_html_()
    assert "<table" not in run._repr_html_()
    failed = replace(run, manifest={**run.manifest, "status": "failed", "reason": "disk <full>"})
    assert "failed (disk &lt;full&gt;)" in failed._repr_html_()


def test_cells_are_text():
    page = html_table([{"a&b": 0.123456, "c": None, "d": "<i>"}])
    assert "<th>a&amp;b</th>" in page
    assert "<td>0.1235</td><td></td><td>&lt;i&gt;</td>" in page
