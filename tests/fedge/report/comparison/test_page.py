"""Statistics over seeds by hand and against SciPy; groups; the page, the CSV and the printed table."""

import csv
import html
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import polars.selectors as cs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import round_result, write_run
from scipy import stats

from fedge.cli import main
from fedge.records.reading.reader import load_run
from fedge.report.compare import compare
from fedge.report.comparison.finals import Final, choice, finals, write_csv
from fedge.report.comparison.formats import as_latex, as_markdown
from fedge.report.comparison.groups import (
    Group,
    differing_settings,
    group_runs,
    mixed_settings,
    settings_of,
)
from fedge.report.comparison.page import compare_page, comparison_notices, write_comparison
from fedge.report.comparison.statistics import Estimate, estimate, paired_difference
from fedge.tasks.configured import CLASSIFICATION

SCORES = st.lists(st.floats(0, 1), min_size=2, max_size=8)


# --- statistics ---------------------------------------------------------------------------------------


def test_interval_by_hand():
    """0.8, 0.9, 1.0: std 0.1, t(0.975, 2) = 4.302653, half 4.302653 · 0.1 / √3 = 0.248414."""
    found = estimate([0.8, 0.9, 1.0])
    assert (found.n, found.mean, found.std) == (3, pytest.approx(0.9), pytest.approx(0.1))
    assert found.low == pytest.approx(0.9 - 0.248414, abs=1e-6)
    assert found.high == pytest.approx(0.9 + 0.248414, abs=1e-6)


def test_paired_difference_by_hand():
    """Seeds 1 and 2 are in both: differences 0.1 and 0.3, mean 0.2, std √0.02, t(0.975, 1) = 12.7062."""
    found = paired_difference({1: 0.6, 2: 0.9, 7: 0.0}, {2: 0.6, 1: 0.5, 3: 1.0})
    assert found is not None
    assert (found.n, found.mean) == (2, pytest.approx(0.2))
    half = 12.7062 * 0.02**0.5 / 2**0.5
    assert (found.low, found.high) == (
        pytest.approx(0.2 - half, abs=1e-5),
        pytest.approx(0.2 + half, abs=1e-5),
    )
    assert paired_difference({1: 0.5}, {2: 0.5}) is None


def test_one_seed_has_no_spread_and_none_no_mean():
    assert estimate([0.5]) == Estimate(0.5, None, None, None, 1)
    with pytest.raises(ValueError, match="nothing to average"):
        estimate([])


def test_equal_values_have_no_spread():
    found = estimate([0.1] * 3)
    assert (found.std, found.low, found.high) == (0.0, found.mean, found.mean)


@given(SCORES)
def test_against_scipy(values):
    found = estimate(values)
    assert found.std == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    if found.std > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert (found.low, found.high) == (pytest.approx(low, rel=1e-9), pytest.approx(high, rel=1e-9))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8))
def test_paired_against_scipy(pairs):
    ours, theirs = ({seed: pair[k] for seed, pair in enumerate(pairs)} for k in (0, 1))
    found = paired_difference(ours, theirs)
    if found.std > 1e-9:
        interval = stats.ttest_rel(*zip(*pairs, strict=True)).confidence_interval(0.95)
        assert found.low == pytest.approx(interval.low, rel=1e-6, abs=1e-9)
        assert found.high == pytest.approx(interval.high, rel=1e-6, abs=1e-9)


def test_an_interval_ends_where_its_numbers_do():
    """0.98, 1, 1: 0.9933 ± 4.3027 · 0.011547 / √3 = 0.9647 to 1.0220, of which no mean is above 1."""
    found = estimate([0.98, 1.0, 1.0], 0.0, 1.0)
    assert (found.low, found.high) == (pytest.approx(0.96465, abs=1e-4), 1.0)
    assert paired_difference({1: 1.0, 2: 0.0}, {1: 0.0, 2: 0.0}, -1.0, 1.0).high == 1.0


@given(SCORES)
def test_bounds_only_cut(values):
    """The rest is the part of the t-interval in which a mean can lie; the mean is in it."""
    free, bound = estimate(values), estimate(values, 0.0, 1.0)
    assert (bound.low, bound.high) == (max(free.low, 0.0), min(free.high, 1.0))
    assert bound.low <= bound.mean + 1e-12
    assert bound.mean - 1e-12 <= bound.high


# --- groups -------------------------------------------------------------------------------------------


@pytest.fixture
def make(tmp_path):
    """Function that writes a run of two rounds that ends with the given rights of 10, and loads it."""

    def make(name, seed, rights, **kwargs):
        rounds = [round_result(1, [5, 5, 5, 5]), round_result(2, rights)]
        return load_run(write_run(tmp_path / name, rounds, seed=seed, **kwargs))

    return make


@pytest.fixture
def six(make):
    """hierfl and fedge with seeds 1 to 3; means 0.8, 0.85, 0.9 and 0.9, 0.95, 0.9."""
    off = {"cluster.enabled": False}
    return [
        make("hierfl-seed2", 2, [8, 9, 8, 9], config=off),
        make("hierfl-seed1", 1, [8, 8, 8, 8], config=off),
        make("hierfl-seed3", 3, [9, 9, 9, 9], config=off),
        make("fedge-seed3", 3, [9, 9, 9, 9]),
        make("fedge-seed1", 1, [9, 9, 9, 9]),
        make("fedge-seed2", 2, [10, 9, 10, 9]),
    ]


def test_runs_that_differ_only_in_seed_are_one_group(six):
    groups, left_out = group_runs(six)
    assert [(g.label, [r.name[-1] for r in g.runs]) for g in groups] == [
        ("hierfl", ["1", "2", "3"]),
        ("fedge", ["1", "2", "3"]),
    ]
    assert left_out == []
    assert differing_settings(groups) == {"cluster.enabled": [False, True]}


def test_other_data_or_clients_are_another_group(make):
    runs = [
        make("a-1", 1, [8] * 4),
        make("b-2", 2, [8] * 4, data={"fingerprint": "1" * 64}),
        make("c-3", 3, [8] * 4, data={"name": "elsewhere.npz"}, config={"data.path": "elsewhere.npz"}),
    ]
    groups, _ = group_runs(runs)
    assert [[r.name for r in g.runs] for g in groups] == [["a-1", "c-3"], ["b-2"]]
    assert list(differing_settings(groups)) == ["data (sha256)"]
    assert [g.label for g in groups] == ["A", "B"]  # "a" and "c" have nothing in common


def test_a_repeated_seed_counts_once(make):
    groups, left_out = group_runs([make("x-1", 1, [8] * 4), make("x-1b", 1, [9] * 4)])
    assert [[r.name for r in g.runs] for g in groups] == [["x-1"]]
    assert left_out == ["x-1b repeats x-1: same configuration and seed 1"]


def test_of_repetitions_the_one_that_went_farthest_counts(make, tmp_path):
    """A run that failed and was started again; the one with all rounds counts, whichever is named first."""
    failed = load_run(
        write_run(tmp_path / "x-1", [round_result(1, [5] * 4)], seed=1, planned=2, status="failed")
    )
    again = make("x-1b", 1, [8] * 4)
    for runs in ([failed, again], [again, failed]):
        groups, left_out = group_runs(runs)
        assert [[r.name for r in g.runs] for g in groups] == [["x-1b"]]
        assert left_out == ["x-1 repeats x-1b: same configuration and seed 1"]


def _part(sha256="", **more):
    return {"name": "nets:Net", "package": "", "version": "", "sha256": sha256, **more}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"parts": {"train.model": _part("a" * 64)}}, {"parts": {"train.model": _part("b" * 64)}}),
        ({"parts": {"train.model": _part(object="a" * 64)}}, {"parts": {"train.model": _part(object="b")}}),
        ({"parts": {"gate.rule": _part("a")}}, {}),
        ({"traces": {"asynchrony.replay": "a" * 64}}, {"traces": {"asynchrony.replay": "b" * 64}}),
        ({"start": "a" * 64}, {"start": "b" * 64}),
    ],
)
@pytest.mark.parametrize("seeds", [(1, 1), (1, 2)])
def test_other_code_or_files_are_another_group(make, tmp_path, one, other, seeds):
    """An edited model under its old name is another method: neither a repetition nor another seed."""
    runs = [make("a", seeds[0], [8] * 4, **one), make("b", seeds[1], [9] * 4, **other)]
    groups, left_out = group_runs(runs)
    assert ([[r.name for r in g.runs] for g in groups], left_out) == ([["a"], ["b"]], [])
    (name,) = differing_settings(groups)
    assert "(sha256)" in name
    together = Group("a", runs, groups[0].settings)  # as the entries of a sweep, which are groups by name
    assert f"The runs of a are no repetitions: they differ in {name}." in [
        notice.text for notice in comparison_notices([together], [])
    ]
    assert mixed_settings(groups[0]) == []


def test_what_no_result_depends_on_makes_no_group(make):
    """The code of a tracker, and of a data set whose windows are the same."""
    runs = [
        make(f"a-{seed}", seed, [8] * 4, parts={"tracker": _part(str(seed)), "data.path": _part(str(seed))})
        for seed in (1, 2)
    ]
    assert len(group_runs(runs)[0]) == 1


def test_runs_of_a_script_are_repetitions_if_their_results_agree(make, tmp_path):
    """Its code may depend on variables that no hash covers: other results are another method's (C3)."""
    script = {"config": {"gate.rule": "__main__:mine"}}
    results = {"a-1": (1, [8] * 4), "a-2": (2, [8] * 4), "b-1": (1, [9] * 4), "b-2": (2, [9] * 4)}
    runs = [make(name, seed, rights, **script) for name, (seed, rights) in results.items()]
    same = make("c-1", 1, [9] * 4, **script)
    groups, left_out = group_runs([*runs, same])
    assert [[r.name for r in g.runs] for g in groups] == [["a-1", "a-2"], ["b-1", "b-2"]]
    assert left_out == ["c-1 repeats b-1: same configuration and seed 1"]
    assert differing_settings(groups) == {"code of the script or notebook": ["version 1", "version 2"]}


def test_python_says_which_run_is_left_out(make):
    with pytest.warns(UserWarning, match="left out: x-1b repeats x-1: same configuration and seed 1"):
        compare([make("x-1", 1, [8] * 4), make("x-1b", 1, [9] * 4)])


@pytest.mark.parametrize("bad", ["inf", "-inf", "1e300", "nan"])
def test_a_diverged_run_is_compared(make, tmp_path, bad):
    """An infinite score or loss: the mean is infinite and has no interval, and the page is written."""
    runs = [
        make(f"{name}-seed{seed}", seed, [8] * 4, config={"train.lr": lr}, outputs={})
        for name, lr in (("a", 0.1), ("b", 9.0))
        for seed in (1, 2)
    ]
    for run in runs[:3]:
        table = run.folder / "metrics/global_rounds.csv"
        head, *rows = csv.reader(table.read_text().splitlines())
        for at, column in enumerate(head):
            if column.startswith(("test_", "val_", "unseen_", "macro_f1")):
                rows[-1][at] = bad
        table.write_text("\n".join(",".join(row) for row in [head, *rows]) + "\n")
    page = tmp_path / "c.html"
    found = compare([run.folder for run in runs], page)
    of = {row["group"]: row for row in found.iter_rows(named=True) if row["metric"] == "mean test loss"}
    assert [of[name]["n"] for name in "ab"] == ([0, 1] if bad == "nan" else [2, 2])
    if bad != "nan":
        assert of["a"]["mean"] == float(bad)
    if "inf" in bad:
        assert [of["a"][key] for key in ("std", "low", "high", "difference")] == [None] * 4
        assert ("−" * (bad < "0") + "∞") in page.read_text()
    assert "NaN" not in found.write_csv()


def test_names_made_of_dates_are_no_labels(make):
    groups, _ = group_runs(
        [make("20250101-101010-seed1", 1, [8] * 4), make("20250102-101010-seed2", 2, [8] * 4)]
    )
    assert [g.label for g in groups] == ["A"]


def test_only_a_seed_is_taken_off_a_name(make):
    """Not the s of a word, not a number that belongs to it."""
    names = {"losses": {"train.lr": 0.1}, "v2-s": {"train.lr": 0.2}, "seed": {"train.lr": 0.3}, "b-s4": {}}
    groups, _ = group_runs([make(name, 4, [8] * 4, config=config) for name, config in names.items()])
    assert [group.label for group in groups] == ["losses", "v2-s", "seed", "b"]


# --- final numbers ------------------------------------------------------------------------------------


def test_final_numbers_by_hand(six):
    """fedge − hierfl per seed: 0.1, 0.1, 0; mean 1/15, over seeds; not 4 clients × 3 seeds = 12 values."""
    rows = {(r.metric, r.group): r for r in finals(group_runs(six)[0])}
    ours, theirs = (rows["mean test accuracy", name] for name in ("fedge", "hierfl"))
    assert (theirs.over_seeds.n, theirs.over_seeds.mean) == (3, pytest.approx(0.85))
    assert theirs.over_seeds.std == pytest.approx(0.05)
    assert theirs.difference is None
    assert (ours.difference.n, ours.difference.mean) == (3, pytest.approx(1 / 15))
    assert ours.difference.std == pytest.approx(np.std([0.1, 0.1, 0.0], ddof=1))
    assert rows["worst client's test accuracy", "hierfl"].over_seeds.mean == pytest.approx(
        (0.8 + 0.8 + 0.9) / 3
    )
    assert rows["seconds of all rounds", "fedge"].over_seeds.mean == 4.0
    assert rows["megabytes up and down", "fedge"].over_seeds.mean == pytest.approx(0.006)


def test_runs_that_did_not_reach_their_end_do_not_count(six, make):
    half = make("fedge-seed4", 4, [0, 0, 0, 0], planned=5, status="failed")
    groups, left_out = group_runs([*six, half])
    assert [g.label for g in groups] == ["A", "B", "C"]  # the number of rounds is a difference, too
    page = compare_page(groups, left_out, finals(groups))
    assert any("fedge-seed4 (failed) has 2 of 5 rounds" in n.text for n in page.notices)
    assert any("differ in their number of rounds" in n.text for n in page.notices)
    assert {r.over_seeds for r in finals(groups) if r.group == "C"} == {None}


@pytest.mark.parametrize(
    ("by", "ends"),
    [
        ("early-stopping", True),
        ("byte-budget", True),
        ("my_callback:Settled", True),
        ("asynchrony", True),
        ("floor", False),
    ],
)
def test_a_run_that_was_ended_counts_unless_it_was_given_up(make, by, ends):
    """Two of five planned rounds, the second with 8 of 10 right; poor trials of a search are given up."""
    stopped = {"by": by, "after_round": 2, "reason": "nothing gets better"}
    called = "" if by == "asynchrony" else by
    run = make("a-seed1", 1, [8] * 4, planned=5, stopped=stopped, config={"callbacks": called})
    rows = finals(group_runs([run])[0])
    (mean,) = [row.over_seeds for row in rows if row.metric == "mean test accuracy"]
    assert mean == (Estimate(pytest.approx(0.8), None, None, None, 1) if ends else None)
    notices = [n.text for n in compare_page(*group_runs([run]), rows).notices]
    said = f"Ended by a callback, so final numbers are of that round: a-seed1 ({by} after 2 of 5 rounds)."
    assert (said in notices) == (ends and by != "asynchrony")
    assert any("in the curves, not in the final numbers" in text for text in notices) != ends


def test_a_run_that_is_stopped_from_outside_does_not_count(make):
    """It was ended by a callback before, but went on with others until it failed."""
    stopped = {"by": "early-stopping", "after_round": 2, "reason": "nothing gets better"}
    run = make("a-seed1", 1, [8] * 4, planned=5, stopped=stopped, status="failed")
    assert {row.over_seeds for row in finals(group_runs([run])[0])} == {None}


def test_the_best_is_marked_where_there_is_a_better(six, make):
    """The higher accuracy, the lower loss; nothing among equals, of one group, or where neither is better."""
    best = {(r.metric, r.group) for r in finals(group_runs(six)[0]) if r.is_best}
    assert ("mean test accuracy", "fedge") in best
    assert ("mean test loss", "fedge") in best
    assert not any(group == "hierfl" for _, group in best)
    assert not any("seconds" in metric or "megabytes up" in metric for metric, _ in best)  # all alike
    assert not any(r.is_best for r in finals(group_runs(six[:3])[0]))


def test_bounded_metrics_have_bounded_intervals(make):
    runs = [make(f"a-{s}", s, [10, 10, 10, 10 - (s == 1)]) for s in (1, 2, 3)]
    for row in finals(group_runs(runs)[0]):
        if "accuracy" in row.metric and row.over_seeds and "to" not in row.metric.split():
            assert row.over_seeds.low >= 0
            assert row.over_seeds.high <= 1


# --- page, CSV, command line --------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_names_what_differs_and_escapes_it(six, tmp_path):
    write_comparison(six, tmp_path / "c.html")
    html = (tmp_path / "c.html").read_text()
    assert "<td>cluster.enabled</td><td>false</td><td>true</td>" in html
    assert "hierfl (seeds 1–3), fedge (seeds 1–3)" in html
    assert "0.8500 ± 0.0500" in html
    for over in ("rounds", "seconds", "bytes"):
        assert f"<strong>Mean test accuracy over {over}</strong>" in html


def test_the_command_writes_page_csv_and_table(six, tmp_path, capsys):
    names = [run.name for run in six]
    words = ["--runs-dir", str(tmp_path), "-o", str(tmp_path / "c.html"), "--csv", str(tmp_path / "c.csv")]
    assert main(["compare", *names, names[0], *words]) == 0
    with (tmp_path / "c.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    (ours,) = (r for r in rows if (r["metric"], r["group"]) == ("mean test accuracy", "fedge"))
    assert (ours["seeds"], ours["n"], ours["reference"], ours["n_pairs"]) == ("1 2 3", "3", "hierfl", "3")
    assert float(ours["difference"]) == pytest.approx(1 / 15)
    low, high = stats.t.interval(0.95, 2, 1 / 15, stats.sem([0.1, 0.1, 0.0]))
    assert (float(ours["difference_low"]), float(ours["difference_high"])) == pytest.approx((low, high))
    (first,) = (r for r in rows if (r["metric"], r["group"]) == ("mean test accuracy", "hierfl"))
    assert (first["reference"], first["difference"]) == ("", "")
    printed = capsys.readouterr().out
    assert "0.8500 ± 0.0500" in printed
    assert printed.endswith(f"{tmp_path / 'c.html'}\n")


@pytest.mark.parametrize(
    ("other", "differing"),
    [({"data": {"fingerprint": "1" * 64}}, "data"), ({"planned": 3}, "number of rounds")],
)
def test_numbers_that_do_not_compare_are_said_wherever_they_are_shown(
    make, tmp_path, capsys, other, differing
):
    """On the page, on the terminal beside the table, and in Python."""
    runs = [make("one", 1, [8] * 4), make("other", 1, [9] * 4, **other)]
    line = f"The groups differ in their {differing}: final numbers do not compare like with like"
    assert main(["compare", "one", "other", "--runs-dir", str(tmp_path), "-o", str(tmp_path / "c.html")]) == 0
    assert f"fedge: {line}\n" in capsys.readouterr().err
    assert f"{line}." in (tmp_path / "c.html").read_text()
    with pytest.warns(UserWarning, match=line):
        compare(runs)


def test_a_csv_that_cannot_be_written_is_the_one_that_is_named(six, tmp_path, capsys):
    (tmp_path / "c.csv").mkdir()
    words = ["--runs-dir", str(tmp_path), "-o", str(tmp_path / "c.html"), "--csv", str(tmp_path / "c.csv")]
    assert main(["compare", six[0].name, *words]) == 4
    assert f"--csv must be writable, but {tmp_path / 'c.csv'}: Is a directory" in capsys.readouterr().err


@pytest.mark.slow
def test_from_python_it_is_a_frame(six, tmp_path):
    """Runs or their folders; the same numbers as in the CSV."""
    found = compare([run.folder for run in six], page=tmp_path / "c.html")
    assert found.equals(compare(six))
    write_csv(tmp_path / "c.csv", finals(group_runs(six)[0]))
    with (tmp_path / "c.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert (tuple(found.columns), len(found)) == (tuple(header), len(rows))
    assert [["" if cell is None else str(cell) for cell in row] for row in found.iter_rows()] == rows
    assert "0.8500 ± 0.0500" in (tmp_path / "c.html").read_text()
    with pytest.raises(ValueError, match="at least one run"):
        compare([])


def test_a_run_that_is_not_there_is_refused(tmp_path, capsys):
    assert main(["compare", "nowhere", "--runs-dir", str(tmp_path)]) == 4
    assert "RUN must be a run folder or a name under" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_page_that_cannot_be_written_names_the_way_out(make, tmp_path, capsys, command):
    run = make("only", 1, [8, 8, 8, 8])
    (tmp_path / "file").write_text("")
    assert main([command, str(run.folder), "-o", str(tmp_path / "file" / "page.html")]) == 4
    said = capsys.readouterr().err
    assert "Not a directory; choose a file with -o" in said
    assert said.count("\n") == 1


def test_single_running_run_compares(make, tmp_path):
    run = make("only", 1, [8, None, 8, 8], status="running", planned=9)
    rows = write_comparison([run], tmp_path / "c.html")
    assert {row.over_seeds for row in rows} == {None}
    assert "There is one group" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize("lost", ["failed", "diverged", "not begun"])
def test_a_group_that_lacks_a_run_is_not_best(make, lost):
    """The run without a number may be the worst: 0.9 of one seed is no better than 0.8 of two."""
    groups = [
        Group(
            name,
            runs := [make(f"{name}-{seed}", seed, [rights] * 4) for seed in (1, 2)],
            settings_of(runs[0]),
        )
        for name, rights in (("a", 8), ("b", 7), ("c", 9))
    ]
    first, other = groups[2].runs
    if lost == "failed":
        other = replace(other, rounds=other.rounds.head(1))
    elif lost == "diverged":
        unknown = cs.float() * math.nan
        tables = {name: getattr(other, name).with_columns(unknown) for name in ("rounds", "leaves")}
        other = replace(other, **tables)
    whole = {(r.metric, r.group) for r in finals(groups) if r.is_best}
    assert ("mean test accuracy", "c") in whole
    if lost == "not begun":
        groups[2] = replace(groups[2], runs=[first], missing=1)
    else:
        groups[2] = replace(groups[2], runs=[first, other])
    rows = finals(groups)
    best = {(r.metric, r.group) for r in rows if r.is_best}
    assert not [name for name, group in best if group == "c"]
    assert ("mean test accuracy", "a") not in best  # 0.9 is better than its 0.8, as far as is known
    named = [replace(r, metric="mean validation accuracy") for r in rows if r.metric == "mean test accuracy"]
    assert choice(named, groups[0].score) == (
        "by mean validation accuracy, no choice yet: c leads, but with 1 of its 2 runs only"
    )


def test_the_choice_is_by_validation_scores():
    """Of two groups the one that is served better on validation windows, whatever test windows say."""
    score, better = CLASSIFICATION.scores[0], Estimate(0.8, 0.01, 0.7, 0.9, 2)
    rows = [
        Final("mean test accuracy", "a", [1, 2], better, "a", None, is_best=True),
        Final("mean validation accuracy", "a", [1, 2], Estimate(0.7, 0.01, 0.6, 0.8, 2), "a", None),
        Final("mean validation accuracy", "b", [1, 2], better, "a", None, is_best=True),
    ]
    assert choice(rows, score).startswith("by mean validation accuracy, on which to choose: b (0.8")
    assert choice(rows[:2], score) is None


def test_a_run_without_rounds_compares(make, tmp_path):
    young = load_run(write_run(tmp_path / "young", [], status="running"))
    write_comparison([make("old", 1, [8] * 4), young], tmp_path / "c.html")
    assert "young (running) has 0 of 1 round:" in (tmp_path / "c.html").read_text()


@pytest.mark.slow
def test_a_table_for_papers(six, make, tmp_path, capsys):
    """Markdown and LaTeX: a group per line, mean and interval, the best in bold, special signs escaped."""
    rows = finals(group_runs(six)[0])
    markdown = as_markdown(rows).splitlines()
    assert markdown[0].startswith(
        "| group | n | mean test accuracy | worst client's test accuracy | mean macro-F1 |"
    )
    assert markdown[2].startswith("| hierfl | 3 | 0.8500 (0.7258 to 0.9742) | ")
    assert markdown[3].startswith("| fedge | 3 | **0.9167 (0.8450 to 0.9884)** | ")
    assert len({line.count("|") for line in markdown}) == 1
    latex = as_latex(rows)
    assert r"fedge & 3 & \textbf{0.9167 (0.8450 to 0.9884)} & " in latex
    odd = [make("50%_&$#-seed1", 1, [8] * 4), make("|x|*-seed1", 1, [9] * 4, config={"train.lr": 0.1})]
    rows = finals(group_runs(odd)[0])
    assert r"50\%\_\&\$\# & 1 & 0.8000 &" in as_latex(rows)
    assert r"| \|x\|\* | 1 | **0.9000** |" in as_markdown(rows)
    assert "\n{}[b] & 1 &" in as_latex([replace(row, group=f"[b]{row.group}"[:3]) for row in rows[:1]])
    named = as_markdown([replace(row, metric="a|b_c", headline=1) for row in rows[:2]]).splitlines()
    assert named[0] == r"| group | n | a\|b\_c |"
    words = [run.name for run in six] + ["--runs-dir", str(tmp_path), "-o", str(tmp_path / "c.html")]
    assert main(["compare", *words, "--format", "latex"]) == 0
    assert capsys.readouterr().out == latex + "\n"


@pytest.mark.slow
def test_a_sweep_is_listed_and_compared(six, tmp_path, capsys):
    """By its name; all of its runs that began."""
    sweep = tmp_path / "runs" / "methods"
    sweep.mkdir(parents=True)
    for run in six:
        run.folder.rename(sweep / run.name)
    (sweep / "sweep.toml").write_text("")
    (sweep / "not-begun").mkdir()
    assert main(["runs", "--runs-dir", str(tmp_path / "runs")]) == 0
    assert "methods/  sweep: 6 completed" in capsys.readouterr().out
    words = ["--runs-dir", str(tmp_path / "runs"), "-o", str(tmp_path / "c.html"), "--format", "markdown"]
    assert main(["compare", "methods", *words]) == 0
    assert "| hierfl | 3 | 0.8500" in capsys.readouterr().out
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "empty" / "sweep.toml").write_text("")
    assert main(["compare", "empty", *words]) == 4
    assert "the sweep must have a run that has begun" in capsys.readouterr().err


def plots_of(page):
    """The points of every figure of a page, as the script reads them."""
    found = re.findall(r'<figure data-points="(.*?)">', page.read_text())
    return [json.loads(html.unescape(text)) for text in found]


def test_points_lie_where_they_are_drawn(six, tmp_path):
    """Within the axes, in the order of rounds; their words are the numbers of the table below."""
    write_comparison(six, tmp_path / "c.html")
    seeds, rounds, *_ = plots_of(tmp_path / "c.html")
    assert [len(points) for points in seeds["series"]] == [3, 3]
    assert [len(points) for points in rounds["series"]] == [2, 2]
    left, top, right, bottom = rounds["box"]
    assert all(left < x < right and top < y < bottom for points in rounds["series"] for x, y, _, _ in points)
    first, last = rounds["series"][1]
    assert first[0] < last[0]
    assert last[1] < first[1]  # a higher accuracy, higher up
    assert last[2:] == ["round 2", "0.9167 ± 0.0289"]


def test_what_was_not_measured_has_no_point(make, tmp_path):
    runs = [make("a-1", 1, [None] * 4), make("b-1", 1, [8] * 4, config={"train.lr": 0.1})]
    write_comparison(runs, tmp_path / "c.html")
    rounds = plots_of(tmp_path / "c.html")[1]
    assert [len(points) for points in rounds["series"]] == [1, 2]
    assert all(math.isfinite(x + y) for points in rounds["series"] for x, y, _, _ in points)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_shows_the_values_that_one_points_at(six, tmp_path):
    """The page's script runs under its policy; one of the test, which points, needs a wider one."""
    write_comparison(six, tmp_path / "c.html")
    page = (tmp_path / "c.html").read_text()
    assert page.count("<script>") == 1
    pointing = """<script>
for (const svg of document.querySelectorAll("figure[data-points] > svg")) {
  const box = svg.getBoundingClientRect();
  const at = { clientX: box.left + 1, clientY: box.top + 1 };
  svg.dispatchEvent(new PointerEvent("pointermove", at));
}
</script></body>"""
    opened = re.sub(r"; script-src 'sha256-[^']*'", "; script-src 'unsafe-inline'", page)
    (tmp_path / "p.html").write_text(opened.replace("</body>", pointing))
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    shown = {}
    for name in ("c", "p"):
        words = [*command, "--dump-dom", (tmp_path / f"{name}.html").as_uri()]
        dom = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
        shown[name] = re.findall(r'<p class="at">(.*?)</p>', dom)
        assert "<circle" in dom  # the script has run, so its hash is what the policy names
    assert shown["c"][:2] == ["Point at a dot.", "after the last round"]
    assert shown["p"][1:3] == ["round 1", "round 1, 2.0000 s"]
    assert shown["p"][0].startswith("hierfl, seed ")
