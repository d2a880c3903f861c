"""Sections of tables: verdicts by hand, and a whole table of small real runs against their own files."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest

from fedge import from_images
from fedge.cli import main as fedge
from fedge.report.comparison.statistics import Estimate
from studies.tables.reported import Measure
from studies.tables.section import (
    INSIDE,
    OUTSIDE,
    bare_table,
    counted,
    full_table,
    marked,
    order,
    section,
    verdict,
)

HEAD = """
[sweep]
name = "table-{name}"
seeds = [1, 2]
runs-dir = "{runs}"
[base]
clients = 4
num-server-rounds = {rounds}
data.path = "{data}"
data.guard-windows = 0
hierarchy.num-servers = 2
partition.kind = "iid"
train.model = "linear"
train.local-epochs = 1
scaffold.enabled = false
cluster.enabled = false
gate.enabled = false
evaluate.common = "test"
[[variants]]
name = "slow"
train.lr = 0.0001
[[variants]]
name = "fast"
train.lr = 0.2
[[deals]]
name = "even"
"""
REPORTED = """
title = "A table"
source = "A paper."
differs = ["the data"]
[cuts]
"num-server-rounds" = "time"
[[measures]]
name = "best-common"
title = "Best, %"
[measures.reported."even"]
slow = [0.0]
fast = [{fast}, 1.0]
[[measures]]
name = "last-common"
title = "last, %"
[[claims]]
measure = "best-common"
more = "fast"
less = "slow"
"""


@pytest.mark.parametrize(
    ("theirs", "low", "high", "found"),
    [
        ([50.0], 0.4, 0.6, INSIDE),
        ([60.05], 0.4, 0.6, INSIDE),  # half of the last digit counts
        ([60.06], 0.4, 0.6, OUTSIDE),
        ([39.9, 5.0], 0.4, 0.6, OUTSIDE),
        ([50.0], None, None, "one seed"),
        (None, 0.4, 0.6, "–"),
    ],
)
def test_where_a_reported_number_lies(theirs, low, high, found):
    assert verdict(theirs, Estimate(0.5, 0.1, low, high, 3), Measure("best-common", "%")) == found


def test_a_number_that_no_run_reached_has_no_verdict():
    assert verdict([1.0], None, Measure("rounds-to:0.9", "")) == "–"


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0.1, 0.2, "yes"),
        (-0.2, -0.1, "the other way"),
        (-0.1, 0.1, "undecided"),
        (None, None, "one seed"),
    ],
)
def test_an_order_needs_an_interval(low, high, found):
    assert order(Estimate(0.1, 0.1, low, high, 3)) == found


@pytest.mark.parametrize(
    ("count", "found"), [(0, "0 of 3 (0 to 71 %)"), (2, "2 of 3 (9 to 99 %)"), (3, "3 of 3 (29 to 100 %)")]
)
def test_counts_have_exact_intervals(count, found):
    """1 − .025^(1/3) = .708; of two the binomial's tails: 3 p² (1 − p) + p³ = .025 at p = .094."""
    assert counted(count, 3) == found


def test_a_row_per_measure_and_variant():
    """Bold where the interval leaves out 0; the same numbers in one row."""
    here = [
        ["one", "15.3 [13.5, 17.2]", "–", "15.3", "0 of 3 (0 to 71 %)", "3"],
        ["same", "15.3 [13.5, 17.2]", "+0.0 [+0.0, +0.0]", "15.3", "0 of 3 (0 to 71 %)", "3"],
        ["more", "20.0 [18.0, 22.0]", "+4.7 [+1.0, +8.4]", "70.1", "1 of 3 (1 to 91 %)", "2"],
        ["less", "15.2 [11.0, 19.4]", "−0.1 [−2.0, +1.8]", "15.2", "0 of 3 (0 to 71 %)", "3"],
    ]
    there = [["one", "1.0", "–", "1.0", "0 of 1 (0 to 98 %)", "1"]]
    measures = [Measure("last-common", "last, %"), Measure("leaves-own", "own, %"), Measure("", "collapsed")]
    assert bare_table([("here", here)], measures, 3).splitlines() == [
        "|  |  | here |",
        "| --- | ---: | ---: |",
        "| last, % | one, same | 15.3 |",
        "|  | more | **20.0** |",
        "|  | less | 15.2 |",
        "| own, %; others as above | more | 70.1 |",
        "| collapsed | one, same, less | 0 of 3 |",
        "|  | more | 1 of 3 |",
        "| seeds, if fewer | more | 2 |",
    ]
    assert bare_table([("here", here[:1]), ("there", there)], measures[:1], 3).splitlines()[2] == (
        "| last, % | one | 15.3 | 1.0 |"
    )
    assert "| last, % | one | 1.0 | 15.3 |" in bare_table([("there", there), ("here", here)], measures, 3)
    assert "|  | same | – | 15.3 |" in bare_table([("there", there), ("here", here)], measures, 3)


def mean_and_ends(values):
    """Mean and 95 % t-interval of two values: t(0.975, 1) = 12.706."""
    mean = sum(values) / 2
    half = 12.706204736 * abs(values[0] - values[1]) / 2
    return mean, mean - half, mean + half


@pytest.mark.whole_runs
def test_a_table_is_of_the_runs(tmp_path, capsys):
    """Not carried out, then in part, then whole: reported, repeated, interval, seeds, order."""
    folder = tmp_path / "small"
    folder.mkdir()
    data = image_file(tmp_path / "images.npz")
    for name, rounds in (("as-published", 3), ("cut", 2)):
        text = HEAD.format(name=f"small-{name}", rounds=rounds, data=data, runs=tmp_path / "runs")
        (folder / f"{name}.toml").write_text(text)
    (folder / "reported.toml").write_text(REPORTED.format(fast="50.0"))
    text = section(folder)
    assert text.startswith("## A table\n\nA paper.\n")
    assert "- the data" in text
    assert "| `num-server-rounds` | 3 | 2 | time |" in text
    assert "*table-small-cut*: not run. `make table-small`: 4 runs." in text
    assert "*table-small-as-published*: not run. `make table-small SETTINGS=as-published`: 4" in text

    assert fedge(["sweep", str(folder / "cut.toml"), "--only", "fast-even-seed1"]) == 0
    text = section(folder)
    assert "*table-small-cut*, `make table-small`: 1 of 4 runs, 2 seeds." in text
    assert text.count("one seed") == 1  # the number; without the other variant there is no order

    assert fedge(["sweep", str(folder / "cut.toml")]) == 0
    (folder / "found.md").write_text("It was the paper.\n")
    text = section(folder)
    assert text.endswith("It was the paper.\n")
    best = {variant: [best_of(tmp_path, variant, seed) for seed in (1, 2)] for variant in ("slow", "fast")}
    mean, low, high = mean_and_ends([100 * value for value in best["fast"]])
    row = next(line for line in text.splitlines() if line.startswith("| even | fast |"))
    cells = [cell.strip().replace("−", "-") for cell in row.strip("|").split("|")]
    assert cells[:4] == ["even", "fast", "50 ± 1", f"{mean:.1f}"]
    within = [max(low, 0.0), min(high, 100.0)]  # no mean share lies beyond
    assert [float(end) for end in cells[4].strip("[]").split(", ")] == pytest.approx(within, abs=0.06)
    assert cells[5:] == [
        verdict([50.0], Estimate(mean / 100, None, low / 100, high / 100, 2), Measure("", ""))
    ]
    apart = [100 * (fast - slow) for fast, slow in zip(best["fast"], best["slow"], strict=True)]
    mean, low, high = mean_and_ends(apart)
    claim = next(line for line in text.splitlines() if line.startswith("| fast above slow"))
    assert f"| {mean:+.1f} [" in claim.replace("−", "-")
    assert claim.endswith(f"| {'yes' if low > 0 else 'the other way' if high < 0 else 'undecided'} |")
    assert "|  |  | even |\n" in text
    header, slow, fast = csv.reader(full_table(folder).splitlines())
    assert header == ["settings", "where", "variant", "last, %", "minus the first", "seeds"]
    assert (slow[2], slow[4], slow[5], fast[2]) == ("slow", "–", "2", "fast")
    mean = fast[3].split(" [")[0]
    assert f"|  | fast | {f'**{mean}**' if '*' in marked(fast[4]) else mean} |\n" in text
    assert capsys.readouterr().err == ""


def image_file(path):
    """Two classes of 4 × 4 images that differ in brightness, not by much; a quarter are test images."""
    rng = np.random.default_rng(0)
    y = np.arange(320) % 2
    x = np.clip(rng.normal(110 + 20 * y[:, None, None], 60, (320, 4, 4)), 0, 255).astype(np.uint8)
    windows = from_images(x, y, users=["all"] * 320, classes=["dark", "light"])
    return replace(windows, part=np.where(np.arange(320) % 8 < 2, "test", "train")).save(path)


def best_of(folder, variant, seed):
    """The best accuracy of the mean model, from the run's own table."""
    path = folder / f"runs/table-small-cut/{variant}-even-seed{seed}/metrics/common_test.csv"
    with path.open(newline="") as table:
        rows = [row for row in csv.DictReader(table) if row["model"] == "global"]
    assert len(rows) == 2
    return max(float(row["test_score"]) for row in rows if math.isfinite(float(row["test_score"])))
