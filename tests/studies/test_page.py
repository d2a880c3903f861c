"""docs/results.md as it is made: a small real sweep, numbers against the runs' own tables, formats."""

import csv
import re
from pathlib import Path

import pytest

from fedge.cli import main as fedge
from fedge.config.registers.option import ConfigError
from fedge.report.comparison.statistics import Estimate
from fedge.sweep.plan import read_sweep
from studies import draws_part, measures
from studies import result_tables as tables
from studies.measures import MissingRuns, read_study
from studies.numbers import COLUMNS
from studies.page import BEGIN, END, main

pytestmark = [pytest.mark.whole_runs, pytest.mark.extended]

STUDIES = Path(__file__).parents[2] / "studies"
SMALL = """
[sweep]
seeds = [1, 2]
supernodes = 12
runs-dir = {runs!r}

[base]
num-server-rounds = 2
data.path = "synthetic"
data.synthetic-users = 12
hierarchy.num-servers = 4
train.model = "linear"
train.local-epochs = 1
partition.unseen-clients = 1
personal.leaf-rounds = 1
"""
BY_LOSSES = 'cluster.count = "2"\n'  # leaves are compared by losses in every step, which costs something
CONFIGS = ("hierfl", "baselines/local", "baselines/oracle", "baselines/random", "fedge")
BLIND = ("hierfl", "baselines/local", "fedge")


def make(studies, docs):
    return main(["--studies", str(studies), "--docs", str(docs)])


def variants(names):
    return "".join(
        f'[[variants]]\nconfig = "configs/{name}.toml"\n{BY_LOSSES if name == "fedge" else ""}'
        for name in names
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a page made from two studies, one with planted groups and one without."""
    folder = tmp_path_factory.mktemp("studies")
    head = SMALL.format(runs=str(folder / "runs"))
    rotate = '[[scenarios]]\nname = "rotate"\nscenario = "rotate"\n'
    (folder / "1-planted.toml").write_text("# Groups,\n# planted.\n" + head + variants(CONFIGS) + rotate)
    (folder / "2-control.toml").write_text("# Nothing planted.\n" + head + variants(BLIND))
    marks = re.findall(r"<!-- (\w+) -->", (STUDIES / "discussion.md").read_text())
    (folder / "discussion.md").write_text("".join(f"{mark}:\n\n<!-- {mark} -->\n\n" for mark in marks))
    assert fedge(["sweep", str(folder / "1-planted.toml"), str(folder / "2-control.toml")]) == 0
    (folder / "docs").mkdir()
    (folder / "docs" / "expect.md").write_text(f"# Before\n{BEGIN}\nold\n{END}\nafter\n")
    assert make(folder, folder / "docs") == 0
    return folder


def last_row(run):
    with (run / "metrics" / "global_rounds.csv").open(newline="") as table:
        return list(csv.DictReader(table))[-1]


def test_every_table_is_there_and_every_mark_is_filled(made):
    page = (made / "docs" / "results.md").read_text()
    assert "<!--" not in page
    for name in ("seen", "unseen", "both"):
        assert f"](results/{name}.svg)" in page
        assert (made / "docs" / "results" / f"{name}.svg").read_text().startswith("<?xml")
    assert "16 runs" in page
    rows = list(csv.reader((made / "docs" / "results" / "studies.csv").open(newline="")))
    assert rows[0] == list(COLUMNS)
    assert [row[:2] for row in rows[1:]] == 5 * [["1-planted", "rotate"]] + 3 * [["2-control", ""]]


def test_accuracies_are_those_of_the_runs(made):
    """Mean over two seeds, before and after fine-tuning, and of users whom nobody trained on."""
    rows = [last_row(made / "runs" / "1-planted" / f"oracle-rotate-seed{seed}") for seed in (1, 2)]
    means = [
        sum(float(row[column]) for row in rows) / 2
        for column in ("shared_accuracy_mean", "tuned_accuracy_mean", "unseen_accuracy_mean")
    ]
    with (made / "docs" / "results" / "studies.csv").open(newline="") as table:
        oracle = next(row for row in csv.DictReader(table) if row["method"] == "oracle")
    assert [oracle["seen"], oracle["tuned"], oracle["unseen"]] == [f"{100 * mean:.1f}" for mean in means]
    assert (oracle["reference"], oracle["clusters"]) == ("one model", "2")
    table = tables.accuracy_table(read_study(made / "1-planted.toml").comparisons[0])
    row = next(line for line in table.splitlines() if line.startswith("| oracle"))
    cells = [cell.strip().replace("−", "-").replace("+", "") for cell in row.strip("|").split("|")]
    for cell, what in ((cells[2], "seen"), (cells[5], "unseen")):
        assert cell == "{} ({} to {})".format(*(oracle[f"{what}_{end}"] for end in ("minus", "low", "high")))


def test_the_summary_is_what_users_get(made):
    """Of fedge what it serves, fine-tuned or not; of the others the model that they share."""
    text = (made / "docs" / "expect.md").read_text()
    assert text.startswith(f"# Before\n{BEGIN}\n\n| seen · unseen |")
    assert text.endswith(f"{END}\nafter\n")
    rows = [last_row(made / "runs" / "2-control" / f"fedge-seed{seed}") for seed in (1, 2)]
    served, unseen = (
        f"{50 * sum(float(row[column]) for row in rows):.1f}"
        for column in ("test_accuracy_mean", "unseen_accuracy_mean")
    )
    assert text.splitlines()[6].endswith(f"| {served} · {unseen} | – |")


def test_the_draws_are_of_the_sweeps_that_are_complete(made, tmp_path, capsys):
    """Between its two marks, on every page that has them; a sweep without runs is named and left out."""
    for name in ("1-planted.toml", "2-control.toml"):
        (tmp_path / name).write_text((made / name).read_text())
    (tmp_path / "3-missing.toml").write_text((made / "2-control.toml").read_text())
    page, other, full = tmp_path / "page.md", tmp_path / "other.md", tmp_path / "full.csv"
    begin, end = draws_part.marks(tmp_path.name)
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    other.write_text("nothing\n")
    folders = ["--studies", str(tmp_path), "--full", str(full)]
    arguments = [*folders, "--pages", str(page), str(other)]
    assert draws_part.main(arguments) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{begin}\n\nSeeds in which")
    assert text.endswith(f"{end}\nafter\n")
    assert "Not run here: 3-missing." in text
    assert "old" not in text
    numbers = tables.accuracy_table(read_study(made / "1-planted.toml").comparisons[0])
    assert numbers not in text
    assert full.read_text() == (made / "docs" / "results" / "studies.csv").read_text()
    with (tmp_path / "full-unseen.csv").open(newline="") as table:
        header, *rows = csv.reader(table)
    assert header[:4] == ["", "oracle", "one model", "leaves alone"]
    assert [row[0] for row in rows] == ["synthetic-4, rotate"]
    planted, nothing = text.split("Without planted groups")
    assert ("| rotate |" in planted, "| 2-control |" in planted) == (True, False)
    nothing = nothing.split("Unseen clients")[0]
    assert ("| rotate |" in nothing, "| 2-control |" in nothing) == (False, True)
    assert other.read_text() == "nothing\n"
    assert "3-missing" in capsys.readouterr().err
    assert draws_part.main([*folders, "--pages"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Seeds in which")
    assert numbers in printed
    (tmp_path / "1-planted.toml").unlink()
    (tmp_path / "2-control.toml").unlink()
    assert draws_part.main(arguments) == 2


def test_what_the_published_rule_saw_is_counted(made):
    """The published rule has no offers to take where leaves stay alone, and its matrix is symmetric."""
    group = measures.by_label(read_study(made / "1-planted.toml").comparisons[0])["local"]
    assert measures.offers_taken(group.runs[0]) == (0, 0)
    fedge_run = measures.by_label(read_study(made / "1-planted.toml").comparisons[0])["fedge"].runs[0]
    pairs = 6 * int(fedge_run.clusters["similarity"].drop_nulls().len())
    assert len(measures.similarities(fedge_run)) == pairs


def test_gains_are_paired_differences_to_one_model_in_the_same_seed(made):
    """Of two seeds, by hand; one model itself has none."""
    groups = measures.by_label(read_study(made / "1-planted.toml").comparisons[0])
    pairs = [
        (measures.seen(run), measures.seen(groups["hierfl"].finished[seed]))
        for seed, run in groups["oracle"].finished.items()
    ]
    assert len(pairs) == 2
    with (made / "docs" / "results" / "studies.csv").open(newline="") as table:
        rows = {row["method"]: row for row in csv.DictReader(table) if row["sweep"] == "1-planted"}
    assert rows["one model"]["seen_minus"] == ""
    mean = 100 * sum(own - one for own, one in pairs) / 2
    assert float(rows["oracle"]["seen_minus"]) == pytest.approx(mean, abs=0.051)


def test_the_oracle_knows_the_groups(made):
    comparison = read_study(made / "1-planted.toml").comparisons[0]
    oracle = measures.by_label(comparison)["oracle"]
    assert all(measures.is_right(run, 2) for run in oracle.runs)
    assert all(map(measures.is_whole, measures.by_label(comparison)["hierfl"].runs))


def test_a_comparison_costs_a_model_of_every_leaf_for_every_client(made):
    """Four leaves, two steps."""
    run = measures.by_label(read_study(made / "2-control.toml").comparisons[0])["fedge"].runs[0]
    cost = measures.clustering_cost(run)
    assert cost is not None
    assert cost.comparisons == 2
    assert cost.bytes_each == pytest.approx(4)


def test_all_columns_are_beside_the_page(made):
    """Those of the page's sentences and of the table that shows some of them."""
    page = (made / "docs" / "results.md").read_text()
    cells = {
        name: list(csv.reader((made / f"docs/results/{name}.csv").open(newline="")))
        for name in ("published", "costs", "spread", "gains", "controls")
    }
    assert len(cells["published"]) == 1
    for name in ("gains", "controls"):
        (row,) = cells[name][1:]
        means = [cell.split(" (")[0] for cell in row[1:]]
        shown = next(
            line
            for line in page.splitlines()
            if line.startswith(f"| {row[0]} | {means[0]}") or line.startswith(f"| {row[0]} | **{means[0]}**")
        )
        assert shown.replace("*", "") == f"| {' | '.join([row[0], *means])} |"
    assert "published:\n\nNo runs." in page
    assert f"A run has {cells['costs'][1][1]}" in page
    assert [row[0] for row in cells["spread"][1:]] == [
        "one model", "leaves alone", "oracle", "random groups", "fedge",
    ]  # fmt: skip
    assert f"| {cells['spread'][1][3]} | {cells['spread'][1][4]} |" in page


def test_rows_with_the_same_numbers_are_one():
    rows = [["one", "1", "2"], ["other", "1", "3"], ["like one", "1", "2"]]
    assert tables.joined(rows) == [["one, like one", "1", "2"], ["other", "1", "3"]]


def test_a_difference_is_bold_where_its_interval_leaves_out_0():
    assert tables.marked_points(Estimate(0.024, 0.01, 0.0006, 0.0474, 5)) == "**+2.4**"
    assert tables.marked_points(Estimate(0.024, 0.01, 0.0004, 0.0476, 5)) == "+2.4"  # as shown, from 0.0
    assert tables.marked_points(Estimate(-0.024, 0.01, -0.04, -0.01, 5)) == "**−2.4**"
    assert tables.marked_points(Estimate(0.024, None, None, None, 1)) == "+2.4"
    assert tables.marked_points(None) == "–"


def test_what_comes_of_the_published_rule_is_one_sentence():
    rows = [["a", "0.83 to 1.00", "5 of 5", "4%"], ["b", "0.79 to 0.99", "4 of 5", "18%"]]
    assert tables.published_line(([], rows)) == (
        "Similarities were 0.79 to 1.00, all leaves one cluster throughout in 9 of 10 runs, "
        "offers taken 4% to 18%."
    )


def test_methods_that_equal_one_model_share_its_column(monkeypatch):
    rows = [["a", "+1.0 (0.5 to 1.5)", "0.0 (0.0 to 0.0)", "+1.0 (0.5 to 1.5)", "0.0 (0.0 to 0.0)"]]

    def cells(_, shown=tables.points):
        short = [[cell.split(" (")[0] for cell in row] for row in rows]
        return ["", "one model", "oracle", "CFL", "FLUX"], rows if shown is tables.points else short

    monkeypatch.setattr(tables, "newcomers_cells", cells)
    assert tables.newcomers_table([]).splitlines() == [
        "|  | one model, CFL | oracle | FLUX |",
        "| --- | ---: | ---: | ---: |",
        "| a | +1.0 | 0.0 | 0.0 |",
    ]


def test_missing_runs_are_one_line(made, tmp_path, capsys):
    text = (made / "2-control.toml").read_text().replace("[1, 2]", "[1, 2, 3]")
    (tmp_path / "2-control.toml").write_text(text)
    with pytest.raises(MissingRuns, match=r"hierfl-seed3 must be there; carry it out with: fedge sweep"):
        read_study(tmp_path / "2-control.toml")
    assert make(tmp_path, tmp_path) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_numbers_as_text():
    found = Estimate(-0.0123, 0.01, -0.02, 0.0049, 5)
    assert tables.percent(Estimate(0.8316, None, None, None, 1)) == "83.2"
    assert tables.points(found) == "−1.2 (−2.0 to 0.5)"
    assert tables.points(Estimate(0.0, 0.0, 0.0, 0.0, 5)) == "0.0 (0.0 to 0.0)"
    assert tables.percent(None) == tables.points(None) == "–"


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_study_can_be_meant(path, monkeypatch):
    monkeypatch.chdir(STUDIES.parent)
    sweep = read_sweep(path)
    assert list(sweep.seeds) == [1, 2, 3, 4, 5]
    labels = {run.point["variants"] for run in sweep.runs}
    assert labels <= tables.NAMES.keys()


def test_a_study_that_cannot_be_meant_is_refused(tmp_path):
    (tmp_path / "x.toml").write_text("[sweep]\nseeds = [1]\n[base]\ntrain.lr = -1\n")
    with pytest.raises(ConfigError, match=r"train\.lr"):
        read_study(tmp_path / "x.toml")
