"""The report of real and made-up runs in every state, as text and in a real browser."""

import base64
import csv
import dataclasses
import hashlib
import json
import logging
import re
import shlex
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from headless import Browser, find_chromium
from run_folders import round_result, write_run

from fedge import simulate
from fedge.cli import main
from fedge.cloud.step import CloudStep
from fedge.console import palette
from fedge.launch.projects.project import Project
from fedge.records.reading.reader import load_run
from fedge.records.recorder import Recorder
from fedge.report.comparison.page import write_comparison
from fedge.report.html import tables
from fedge.report.html.svg import to_svg
from fedge.report.listing import lines, list_runs, runs_in
from fedge.report.report_hook import write_report_at_end
from fedge.report.run_page import write_report
from fedge.report.sections.clients import _bar_plot, confusion_panel, last_clients
from fedge.report.sections.clustering import chosen_steps
from fedge.report.sections.data import classes_panel
from fedge.report.sections.gate import gate_section
from fedge.report.sections.setup import changed_options, command
from fedge.report.sections.timeline import gantt_panels, idle_reason
from fedge.rounds.measurements.results import ClientResult, LeafResult, RoundResult
from fedge.serving.gate import GateResult, Paired
from fedge.serving.personal import PersonalResult
from fedge.timing.laps import PHASES

pytestmark = pytest.mark.whole_runs

SECTIONS = ["Accuracy and loss", "Clients", "Clusters", "Gate", "Data", "Time", "Memory", "Configuration",
            "How to reproduce"]  # fmt: skip
OF_TREE = [SECTIONS[0], "Servers", *SECTIONS[1:]]  # where the folder has the table of servers
TOY = {"num-server-rounds": 2, "train.model": "linear", "train.local-epochs": 1, "data.path": "synthetic"}


@pytest.fixture(scope="module")
def real_run(tmp_path_factory):
    """A real run on synthetic data, in the in-process engine; its report is there when it has ended."""
    folder = tmp_path_factory.mktemp("real")
    with (folder / "terminal.txt").open("w") as terminal:
        outcome = simulate({**TOY, "runs-dir": str(folder), "run-name": "toy"}, terminal=terminal)
    return outcome.folder


@pytest.fixture
def folder(tmp_path):
    rounds = [
        round_result(1, [5, 6, 7, 8], similarity=0.9),
        round_result(2, [9, 10, None, 10], labels=(0, 1), similarity=0.2),
    ]
    return write_run(tmp_path / "mine", rounds)


def html_of(folder):
    return write_report(folder).read_text()


def changed_table(folder, name, change):
    """Rewrite a table of a folder: `change` takes and returns its rows, header apart."""
    file = folder / name
    with file.open(newline="") as stream:
        header, *rows = csv.reader(stream)
    with file.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *change(header, rows)])


@pytest.mark.parametrize("empty", [("1", "0"), ("2", "1"), ("1", "1")])
def test_a_leaf_may_be_without_clients_in_a_round(folder, empty):
    """Clients have gone elsewhere (hierarchy.mobility): its row is there, its clients' rows are not."""

    def gone(header, rows):
        at = header.index("global_round"), header.index("leaf")
        left = [row for row in rows if tuple(row[n] for n in at) != empty]
        assert len(left) < len(rows)
        return left

    changed_table(folder, "metrics/clients.csv", gone)
    assert "(clients " in html_of(folder)


ODD_NAMES = (
    "client",
    "leaf",
    "*",
    "^.*$",
    "",
    "null",
    "NaN",
    "1",
    "=cmd",
    "a,b",
    '"q"',
    "<b>",
    "$x^$",
    "x" * 500,
)


def test_classes_may_be_named_as_anything(folder):
    """Names of columns, of Polars' patterns, of nothing, of mathematics; the table has each one's windows."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["data"]["classes"] = list(ODD_NAMES)
    (folder / "manifest.json").write_text(json.dumps(manifest))

    def named(header, rows):
        at, windows = header.index("class"), header.index("windows")
        made = [[*rows[0]] for _ in ODD_NAMES]
        for number, (row, name) in enumerate(zip(made, ODD_NAMES, strict=True)):
            row[at], row[windows] = name, str(101 + number)
        return made

    changed_table(folder, "partition.csv", named)
    run = load_run(folder)
    panel = classes_panel(run)
    (cells,) = panel.table.rows
    assert list(panel.table.headers[1:-1]) == list(ODD_NAMES)
    assert list(cells[1:-1]) == [str(101 + number) for number in range(len(ODD_NAMES))]
    html_of(folder)


def test_windows_without_a_class_each_are_counted_all_the_same(folder):
    """Of a regression, say: a column for all windows, as many as partition.csv has; none of a class."""

    def nameless(header, rows):
        at = header.index("class")
        return [[*row[:at], "", *row[at + 1 :]] for row in rows]

    changed_table(folder, "partition.csv", nameless)
    run = load_run(folder)
    panel = classes_panel(run)
    assert list(panel.table.headers) == ["client", "all"]
    assert [list(row) for row in panel.table.rows] == [[str(k), "10"] for k in range(4)]
    assert "2 outputs, " in html_of(folder)


@pytest.mark.parametrize("classes", [300, 41, 40])
def test_many_classes_stay_readable_and_small(classes):
    """A matrix of many classes is an image, with a row per class in its table."""
    matrix = np.diag(np.arange(classes)) + np.eye(classes, k=1, dtype=np.int64)
    panel = confusion_panel(matrix, [f"class {n}" for n in range(classes)], "Confusion")
    assert len(panel.table.rows) == classes
    if classes > 40:
        assert list(panel.table.rows[3]) == ["class 3", "4", "3", "class 4", "1", "0.7500", "0.7500"]
        assert list(panel.table.rows[-1][3:5]) == ["–", "–"]
        assert len(to_svg(panel.figure, "matrix", "of classes")) < 100_000
    else:
        assert len(panel.table.headers) == classes + 3


class Outline(HTMLParser):
    """Collects headings, ids, table rows and figures, and checks that tags close in order."""

    VOID = ("meta", "link", "br")

    def __init__(self, html):
        super().__init__()
        self.open, self.headings, self.ids, self.rows, self.figures = [], [], [], [], 0
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.figures += tag == "svg"
        if tag == "tr":
            self.rows.append([])

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["h2"]:
            self.headings.append(data)
        if self.open[-1:] in (["td"], ["th"]):
            self.rows[-1].append(data)


# --- a real run ---------------------------------------------------------------------------------------


def test_a_run_leaves_its_report(real_run):
    html = (real_run / "report.html").read_text()
    outline = Outline(html)
    assert outline.headings == OF_TREE
    assert "The data are synthetic: scores say nothing about people." in html
    final = load_run(real_run).rounds.row(-1, named=True)
    assert f"<dd>{final['test_accuracy_mean']:.4f}</dd>" in html
    assert f"<dd>{final['test_accuracy_worst']:.4f}</dd>" in html
    assert "report: " in (real_run.parent / "terminal.txt").read_text().splitlines()[-1]


def test_confusion_and_partition_of_a_real_run(real_run):
    """The recorded matrices give the recorded accuracies, the partition the recorded windows."""
    run = load_run(real_run)
    last = run.clients.filter(run.clients["global_round"] == 2)
    assert run.confusion.keys() == set(last["client"])
    for row in last.iter_rows(named=True):
        matrix = run.confusion[row["client"]]
        assert matrix.sum() == row["test_samples"]
        assert np.trace(matrix) / matrix.sum() == row["test_accuracy"]
        held = run.partition.filter(run.partition["client"] == row["client"])
        assert held.filter(held["split"] == "test")["windows"].sum() == row["test_samples"]
        assert held.filter(held["split"] == "train")["windows"].sum() == row["train_samples"]


def test_no_report_when_none_is_wanted(tmp_path):
    with (tmp_path / "terminal.txt").open("w") as terminal:
        outcome = simulate({**TOY, "runs-dir": str(tmp_path), "report": False}, terminal=terminal)
    assert outcome.status == "completed"
    assert not (outcome.folder / "report.html").exists()


# --- content ------------------------------------------------------------------------------------------


def test_numbers_of_every_figure_are_in_tables(folder):
    outline = Outline(html_of(folder))
    rows = outline.rows
    assert ["2", "0.9500", "1.0000"] in rows  # accuracy of leaf 0 and 1 in round 2
    assert ["0", "0", "a", "seen", "0.9000", "0.9000", "20", "20"] in rows  # the worst client
    assert ["walk", "29", "1", "0.9667", "0.9667"] in rows  # confusion: 9 + 10 + 10 of 30
    assert ["2", "0.2000", "0.2000", "0.2000", "0.7000", "2", "no"] in rows  # similarity
    assert ["2", "{0} {1}".replace(" ", "  "), "1"] in rows  # leaf 1 left in round 2
    assert ["2", "1", "0.5000", "0.7500", "rejected"] in rows  # gate
    assert ["0", "5", "5", "10"] in rows  # windows per class of client 0
    assert ["0", "0", "a", "seen", "–", "6", "2", "2"] in rows  # what client 0 holds
    assert ["wait", "clients train and evaluate", "3.0000", "75.0 %", "1.5000", "1.5000"] in rows
    assert ["server", "1", "102.0", "2", "102.0", "102.0"] in rows
    assert ["training", "SGD, SCAFFOLD's and privacy's arithmetic", "4.0000", "66.7 %"] in rows
    shares = ["60.0 %", "13.3 %", "0.0 %", "0.0 %", "6.7 %", "20.0 %", "13.3 %"]  # of worker 1
    assert ["1", "2", "6", "3.0000", *shares] in rows
    assert ["run", "0.4500", "1.1300", "1.3730", "1.4000", "1.4000", "in the client's code"] in rows
    seconds = ["0.0000", "0.9000", "0.0000", "0.0000", "0.0000", "0.2000", "0.1000", "1.2000", "1.5000"]
    assert ["1", "3", "1", *seconds] in rows  # client 3 on worker 1
    assert ["resident memory", "server", "102.0", "2", "11"] in rows
    assert ["memory of its own (USS)", "worker", "29.0", "1", "12"] in rows
    assert ["open files", "server", "20", "1", "11"] in rows
    assert ["num-server-rounds", "2", "100", "global rounds"] in rows


def test_sentences(folder):
    html = html_of(folder)
    assert "worst client is client 0 (user a, leaf 0) with 0.9000 on 20 test windows" in html
    assert "1 cluster in 1 of 2 cloud steps; 2 clusters in 1 of 2 cloud steps." in html
    assert "Similarities between leaves lay between 0.2000 and 0.9000." in html
    assert "The groups changed in round 2." in html
    assert "2 of 4 offers were taken." in html
    assert "2 rounds took 4.0 s; 75 % of it the server waited for clients." in html
    assert (
        "What bound the run: 50 % training, 25 % the server&#39;s own work, 10 % idle or transport, "
        "5 % loading, 5 % evaluating, 5 % serialising; worker 1 idle 20 % of the wait because 4 clients do "
        "not divide evenly among 2 workers."
    ) in html
    assert "Most resident memory had the server (process 11) in round 2: 102 MiB." in html
    assert "Most memory of its own (USS) had the server (process 11) in round 1: 80 MiB." in html


@pytest.mark.parametrize(
    ("clients", "workers", "reason"),
    [
        ({0: 3.0, 1: 1.0, 2: 1.0, 3: 1.0}, {}, "client 0 holds 50 % of the work"),
        ({0: 1.0}, {}, "2 workers share 1 client"),
        ({}, {"idle_at_end": 0.125}, "messages were on their way"),
        ({}, {"idle": 0.0625}, None),
        ({}, {"worker": 0}, None),
    ],
    ids=["a large client", "few clients", "transport", "not idle", "one worker"],
)  # fmt: skip
def test_why_a_worker_was_idle(folder, clients, workers, reason):
    """Workers with timelines of 1.5 s, 20 % of it idle in the second; clients that train as long as given."""
    run = load_run(folder)
    seconds = pl.DataFrame({"client": list(clients), "train_seconds": list(clients.values())})
    changed = run.workers.with_columns(**{name: pl.lit(value) for name, value in workers.items()})
    run = replace(run, workers=changed, clients=seconds if clients else run.clients)
    expected = f"worker 1 idle 20 % of the wait because {reason}" if reason else ""
    assert idle_reason(run) == expected


def test_rounds_are_drawn_for_what_they_are_known_for(tmp_path):
    """The slowest is named only if its messages are kept."""
    run = load_run(write_run(tmp_path / "r", [round_result(r, [5] * 4) for r in (1, 2, 3)]))
    numbers = [pl.lit(r, pl.Int64).alias("global_round") for r in (1, 2, 3)]
    everything = pl.concat([run.messages.head(4).with_columns(number) for number in numbers])

    def titles(kept, seconds):
        timing = run.timing.with_columns(total=pl.Series(seconds))
        chosen = everything.filter(pl.col("global_round").is_in(kept))
        return [p.title for p in gantt_panels(replace(run, timing=timing, messages=chosen))]

    assert titles([1, 2, 3], [1.0, 3.0, 2.0]) == [
        "Workers in round 1, the first", "Workers in round 2, the slowest", "Workers in round 3, the last"
    ]  # fmt: skip
    assert titles([1, 3], [1.0, 2.0, 3.0])[1] == "Workers in round 3, the slowest and the last"
    assert titles([1], [1.0, 3.0, 2.0]) == ["Workers in round 1, the first"]
    assert titles([2, 3], [3.0, 2.0, 1.0])[0] == "Workers in round 2"
    assert titles([], [1.0, 2.0, 3.0]) == []


def test_a_round_of_many_messages_is_drawn_in_bins(folder):
    """Of 400 calls on 30 workers, those of 24 are drawn, 13 or 14 each; the 100 longest are in the table."""
    run = load_run(folder)
    calls = [
        {**dict.fromkeys(run.messages.columns, 0.0), "global_round": 2, "exchange": 1, "client": k,
         "worker": k % 30, "began": 0.1 * (k // 30), "train": 0.05 + k / 1e4, "received": 1.9}
        for k in range(400)
    ]  # fmt: skip
    (panel,) = gantt_panels(replace(run, messages=pl.DataFrame(calls, schema=run.messages.schema)))
    assert len(panel.table.rows) == 100
    assert len(panel.figure.axes[0].get_yticks()) == 24
    assert "The first 24 of 30 workers. The table has the 100 longest of 322 messages." in panel.caption


def write_decision(folder, recorded):
    """A run with one decision of the gate `paired`, and further options in its manifest.

    Leaf 0: 50 windows, 6 only own right, 2 only offered: 0.0554 and 0.1445. Leaf 1: no offer.
    """
    result = round_result(1, (9, 9, 9, 9))
    gate = GateResult("accepted", 0.92, 0.84, True, Paired(40, 6, 2, 50), 0.5, role="offered")
    tuned = PersonalResult(0.84, 0.95, serves=True)
    result.leaves[0] = dataclasses.replace(result.leaves[0], gate=gate, personal=tuned, serves="personal")
    result.leaves[1] = dataclasses.replace(result.leaves[1], gate=GateResult("off", 0.5, None, False))
    write_run(folder, [result], config={"gate.rule": "paired", "personal.leaf-rounds": 3})
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["config"].update(recorded)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_what_a_decision_rests_on_and_personal_models(tmp_path):
    html = html_of(write_decision(tmp_path / "run", {"gate.rule-args": '{"level": 0.1}'}))
    rows = Outline(html).rows
    assert ["1", "0", "0.5000", "50", "6", "2", "0.0554", "0.1445", "accepted"] in rows
    assert ["1", "0", "0.8400", "0.9500", "personal"] in rows
    assert "1 of 1 offer was taken." in html
    assert "exact one-sided test says at level 0.1 that it is worse." in html
    assert "before and after 3 leaf rounds" in html


@pytest.mark.parametrize(
    ("recorded", "level"),
    [
        ({"gate.rule-args": '{"level": 0.2}'}, "0.2"),
        ({}, "0.05"),
        ({"gate.rule-args": '{"level": 7}'}, "0.05"),  # that nobody can have asked for
        ({"gate.rule-args": "[]"}, "0.05"),
    ],
)
def test_the_level_of_a_gates_test_is_that_of_the_run(tmp_path, recorded, level):
    said = gate_section(load_run(write_decision(tmp_path / "run", recorded))).text
    assert any(f"test says at level {level} that it is worse." in sentence for sentence in said)


def test_ids_are_unique_and_references_resolve(folder):
    html = html_of(folder)
    ids = Outline(html).ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', html)) <= {(i, "") for i in ids} | {
        ("", i) for i in ids
    }


def test_nothing_is_fetched_and_the_only_script_is_the_page_s_own(folder):
    """One script, which shows values where one points; the page's policy lets no other run."""
    html = html_of(folder)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert html.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'" in html
    )
    assert not re.findall(r'(?:src|href)="(?!#|data:)', html)
    assert not re.findall(r"@import|url\((?!#)", html)


def test_what_comes_from_a_run_is_escaped(folder):
    """A class is called <sit>; the folder and a remark bring tags of their own."""
    moved = folder.rename(folder.with_name("<b>run & co"))
    manifest = json.loads((moved / "manifest.json").read_text())
    manifest["remarks"] = ['<script>alert("x")</script>']
    (moved / "manifest.json").write_text(json.dumps(manifest))
    html = html_of(moved)
    Outline(html)
    assert html.count("<script") == 1
    assert "<script>alert" not in html
    assert "<sit>" not in html
    assert "<h1>&lt;b&gt;run &amp; co" in html


def test_curves_say_their_values_where_one_points(folder):
    """The points of a figure are the numbers of its table: one series per leaf, one point per round."""
    run = load_run(folder)
    html = html_of(folder)
    figures = [json.loads(unescape(found)) for found in re.findall(r'data-points="([^"]*)"', html)]
    accuracy = figures[0]
    leaves = run.leaves["leaf"].unique().sort()
    assert len(accuracy["series"]) == len(leaves)
    for leaf, points in zip(leaves, accuracy["series"], strict=True):
        rows = run.leaves.filter(pl.col("leaf") == leaf)
        assert [at for _, _, at, _ in points] == [f"round {number}" for number in rows["global_round"]]
        assert [words.split()[0] for *_, words in points] == [
            f"{value:.4f}" for value in rows[f"test_{run.score.name}"]
        ]
        across = [x for x, *_ in points]
        assert across == sorted(set(across))


def test_figures_have_the_same_bytes_every_time(folder):
    first, second = (re.findall(r"<svg.*?</svg>", html_of(folder), re.DOTALL) for _ in range(2))
    assert first == second
    assert len(first) > 10


def test_colours_are_variables_with_a_value_for_light_and_dark(folder):
    html = html_of(folder)
    used = set(re.findall(r"var\((--[a-z]+)\)", html))
    assert {"--ink", "--faint", "--blue", "--vermillion"} <= used
    for dark in (False, True):
        assert used <= palette.css_variables(dark).keys()
    for _, light, _ in palette.SERIES:
        assert light not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)


# --- states -------------------------------------------------------------------------------------------


def test_a_run_that_has_not_ended(tmp_path):
    html = html_of(write_run(tmp_path / "r", [round_result(1, [5, 6, 7, 8])], status="running", planned=9))
    assert "1 of 9 global rounds" in html
    assert "The run has not ended: it is in progress, or was killed." in html
    assert Outline(html).headings == [*SECTIONS, "Log"]


def test_a_run_that_failed_before_its_first_round(tmp_path):
    folder = write_run(tmp_path / "r", [], status="failed", reason="no client <could> train")
    html = html_of(folder)
    assert "The run failed: no client &lt;could&gt; train" in html
    assert Outline(html).headings == [*SECTIONS[4:], "Log"]
    assert "INFO the last words" in html


def test_a_run_that_failed_before_its_data(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.update_manifest(status="failed", reason="early")
    html = html_of(tmp_path)
    assert "The run ended before its data were loaded." in html


def test_rounds_in_which_nobody_was_evaluated(tmp_path):
    nobody = round_result(1, [None] * 4, decisions=("off", "off"))
    html = html_of(write_run(tmp_path / "r", [nobody], status="partial"))
    assert "No client was evaluated." in html
    assert "Clients failed during the run" in html


def test_a_client_without_a_score_has_no_bar(tmp_path):
    """Devices without test windows, and clients that failed, were drawn with a score of 0.000."""
    page = write_run(tmp_path / "r", [round_result(1, [5, None, 7, None])])
    html = html_of(page)
    assert "2 clients without a score: left out." in html
    run = load_run(page)
    shown = [
        text.get_text()
        for text in _bar_plot(run, last_clients(run).drop_nulls("test_accuracy")).axes[0].texts
    ]
    assert shown == ["0.500  worst", "0.700"]


def test_damaged_and_older_folders(folder):
    (folder / "partition.csv").unlink()
    (folder / "metrics" / "confusion.json").unlink()
    (folder / "memory.csv").write_text("global_round,role\n1,ser")
    html = html_of(folder)
    assert "memory.csv ends in half a line, which is left out." in html
    assert "partition.csv cannot be read" in html
    assert Outline(html).headings == SECTIONS


def test_clustering_off_and_one_leaf(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.update_manifest(
            status="completed", config={"gate.enabled": False}, data={}, clients_per_leaf=[1]
        )
        cloud = CloudStep("off", np.array([0]), None, 0.7, True, [])
        client = ClientResult(0, 0, 5, 0.5, 4, 0.5, 0.7, {"macro_f1": 0.5}, 1.0, np.array([[2, 2], [0, 0]]))
        leaf = LeafResult(0, 0, GateResult("off", 0.5, None, False), 0.5, 0.7, {"macro_f1": 0.5}, 1, 5)
        recorder.write_round(
            RoundResult(1, [client], [leaf], cloud, 1, {}, 1, 1), dict.fromkeys(PHASES, 0.0), []
        )
    html = html_of(tmp_path)
    assert "Clustering is off: the cloud averages all leaves into one model." in html
    assert "The gate is off: every offer is taken." in html
    assert "Flat federated learning" in html


def test_tests_for_groups_are_shown(tmp_path):
    """Two rounds with the p-values of tests, a split, no threshold; and steps that compared nothing."""
    tests = [{"leaves": [0, 1], "parts": [[0], [1]], "statistic": 1.0, "p": p} for p in (0.25, 0.004)]
    event = {"kind": "split", "before": [[0, 1]], "after": [[0], [1]]}
    facts = [{"tests": tests[:1]}, {"tests": tests, "events": [event]}]
    rounds = [round_result(1, [5, 6, 7, 8]), round_result(2, [5, 6, 7, 8], labels=(0, 1))]
    rounds = [
        dataclasses.replace(r, cloud=dataclasses.replace(r.cloud, signal="affinity", facts=f))
        for r, f in zip(rounds, facts, strict=True)
    ]
    auto = {
        "cluster.signal": "affinity", "cluster.method": "agglomerative", "cluster.count": "auto",
        "cluster.patience": 2,
    }  # fmt: skip
    run = load_run(write_run(tmp_path / "auto", rounds, config=auto))
    assert run.clusters["lowest_p"].to_list() == [0.25, 0.004]
    html = html_of(tmp_path / "auto")
    assert "Round 2: leaves {0 1} split into {0} and {1}." in html
    assert "Are there groups?" in html
    assert "Pairs above tau" not in html
    nothing = [
        dataclasses.replace(r, cloud=dataclasses.replace(r.cloud, similarity=None, facts={"skipped": "why"}))
        for r in rounds
    ]
    write_run(tmp_path / "nothing", nothing, config=auto)
    assert "Leaves could not be compared in any cloud step" in html_of(tmp_path / "nothing")


def test_steps_without_a_comparison_are_told(tmp_path):
    """Of three cloud steps the second compares nothing; the similarities shown are those of the others."""
    rounds = [round_result(number, [5, 6, 7, 8]) for number in (1, 2, 3)]
    rested = dataclasses.replace(rounds[1].cloud, similarity=None, facts={"compared": False})
    rounds[1] = dataclasses.replace(rounds[1], cloud=rested)
    folder = write_run(tmp_path / "run", rounds, config={"cluster.regroup-every": 3})
    assert load_run(folder).clusters["compared"].to_list() == [True, False, True]
    html = html_of(folder)
    assert "A comparison was due in 2 of 3 cloud steps; in the others clusters stayed as they were." in html
    assert "1 cluster in 3 of 3 cloud steps." in html
    assert "Similarity in round 3" in html
    assert "Similarity in round 2" not in html


def test_many_leaves_and_clients(tmp_path):
    """25 leaves with 2 clients each: ranges for lines, ranks for bars, pictures for matrices."""
    rng = np.random.default_rng(0)
    with Recorder(tmp_path) as recorder:
        recorder.update_manifest(
            status="completed", config={"num-server-rounds": 3}, clients_per_leaf=[2] * 25
        )
        for number in (1, 2, 3):
            matrix = np.corrcoef(rng.normal(size=(25, 40)))
            labels = rng.integers(0, 9, 25)
            scores = rng.uniform(size=50)
            clients = [
                ClientResult(k, k // 2, 5, 0.5, 4, s, 1 - s, {"macro_f1": s}, 1.0)
                for k, s in enumerate(scores)
            ]
            leaves = [
                LeafResult(
                    k,
                    int(labels[k]),
                    GateResult("rejected", 0.5, 0.4, False),
                    s,
                    1 - s,
                    {"macro_f1": s},
                    2,
                    10,
                )
                for k, s in enumerate(scores[::2])
            ]
            cloud = CloudStep("weights", labels, matrix, 0.7, False, [])
            laps = dict.fromkeys(PHASES, 1.0)
            recorder.write_round(RoundResult(number, clients, leaves, cloud, 50, {}, 1, 1), laps, [])
    html = html_of(tmp_path)
    assert "25 leaves: median, with its middle 80 % and its range as bands." in html
    assert len(html) < 1_000_000


def test_a_report_that_cannot_be_written_is_a_warning(folder, caplog):
    (folder / "manifest.json").write_text("[")
    said = []
    with caplog.at_level(logging.WARNING):
        write_report_at_end(folder, said.append)
    assert said == [f"note: no report could be written, see run.log; fedge report {folder}"]
    assert "no report.html: RunFolderError" in caplog.text


# --- commands -----------------------------------------------------------------------------------------


def test_the_command_writes_a_report_by_name_or_path(folder, tmp_path, capsys):
    (tmp_path / "latest").symlink_to(folder.name)
    assert main(["report", "--runs-dir", str(tmp_path)]) == 0
    assert main(["report", str(folder), "-o", str(tmp_path / "other.html")]) == 0
    assert capsys.readouterr().out.splitlines() == [str(folder / "report.html"), str(tmp_path / "other.html")]
    assert (tmp_path / "other.html").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "nowhere"], "RUN must be a run folder or a name under"),
        (["report", "."], "is not a run folder: it has no manifest.json"),
        (["runs", "--runs-dir", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_commands_refuse_in_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 4
    error = capsys.readouterr().err
    assert error.startswith("fedge: ")
    assert message in error
    assert error.count("\n") == 1


def test_where_there_is_no_run_yet_the_list_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert "no run yet in runs; start one with `fedge run`" in capsys.readouterr().err


def test_the_list_of_runs(folder, tmp_path, capsys):
    write_run(tmp_path / "young", [], status="running", planned=7, seed=3)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "manifest.json").write_text("{")
    (tmp_path / "no-run").mkdir()
    (tmp_path / "latest").symlink_to("mine")
    with (folder / "metrics" / "global_rounds.csv").open("a") as table:
        table.write("3,0.")  # still being written
    found = {run.name: run for run in list_runs(tmp_path)}
    assert found.keys() == {"mine", "young", "odd"}
    mine = found["mine"]
    assert (mine.status, mine.score, mine.worst, mine.rounds, mine.seed) == (
        "completed", "0.9667", "0.9000", "2/2", "1"
    )  # fmt: skip
    assert (found["young"].rounds, found["young"].score, found["odd"].status) == ("0/7", "–", "unreadable")
    assert main(["runs", "--runs-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == list(lines(list_runs(tmp_path)))
    assert re.fullmatch(r"mine +completed +0\.9667 +0\.9000 +– +2/2 +1 +2025-01-02 03:04:05", printed[-1])


def test_a_sweep_counts_each_of_its_runs_once(tmp_path):
    """The link to the newest stands beside them."""
    sweep = tmp_path / "axes"
    sweep.mkdir()
    (sweep / "sweep.toml").write_text("")
    for name, status in (("a", "completed"), ("b", "completed"), ("c", "failed")):
        write_run(sweep / name, [], status=status)
    (sweep / "latest").symlink_to("c")
    (listed,) = list_runs(tmp_path)
    assert listed.status == "sweep: 2 completed, 1 failed"
    assert [run.name for run in runs_in(sweep)] == ["a", "b", "c"]


def test_seen_and_unseen_users_stand_apart(tmp_path):
    """Clients 0 and 2 train and get 9 and 8 of 10 right, unseen clients 1 and 3 get 4 and 6; groups 0 and 1.

    Seen: mean 0.85, std 0.05, tenth percentile 0.8 + 0.1 · 0.1, Jain 1.7² / (2 · (0.81 + 0.64)) = 0.9966.
    Unseen: 0.5, 0.1, 0.42, 1² / (2 · (0.16 + 0.36)) = 0.9615. Clusters 0 1 are the groups 1 0.
    """
    rounds = [
        round_result(r, [9, 4, 8, 6], labels=(0, 1), unseen_clients=(1, 3), truth=(1, 0)) for r in (1, 2)
    ]
    planted = {"kind": "flip", "groups": [1, 0], "changes": [{}, {}]}
    run = write_run(
        tmp_path / "both", rounds, unseen_clients=(1, 3), scenario=planted, config={"scenario": "flip"}
    )
    html = html_of(run)
    rows = Outline(html).rows
    assert ["clients", "seen", "accuracy", "2", *["0.8500", "0.0500", "0.8000", "0.8100", "0.9966"]] in rows
    assert ["clients", "unseen", "accuracy", "2", *["0.5000", "0.1000", "0.4000", "0.4200", "0.9615"]] in rows
    assert ["leaves", "unseen", "macro-F1", "2", *["0.5000", "0.1000", "0.4000", "0.4200", "0.9615"]] in rows
    assert ["3", "1", "d", "unseen", "0.6000", "0.6000", "20", "0"] in rows
    assert ["2", "0.8500", "0.5000", "0.1000", "0.4000", "0.4200", "0.9615", "0.5000"] in rows
    assert ["2", "1.0000", "1.0000", "1.0000", "1.0000", "0.0000"] in rows  # agreement and churn
    assert "Planted groups (flip): {1}  {0}; found exactly in rounds 1–2." in html
    assert "the worst unseen client is client 1 (user b, leaf 0) with 0.4000" in html
    assert "the worst client is client 2 (user c, leaf 1) with 0.8000" in html
    assert "Confusion matrix, worst client (2)" in html
    assert "Confusion matrix, all unseen clients" in html
    assert "<dd>0.5000</dd>" in html  # the tile
    (listed,) = list_runs(tmp_path)
    assert (listed.score, listed.worst, listed.unseen) == ("0.8500", "0.8000", "0.5000")


def test_no_runs(tmp_path, capsys):
    assert main(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert f"no run yet in {tmp_path}" in capsys.readouterr().err


def test_the_command_to_reproduce_gives_the_same_configuration(tmp_path):
    """The page's command, read back by the parser of `fedge run`, is that of the run."""
    config = {"train.lr": 0.125, "data.path": "it's here.npz", "scaffold.enabled": False}
    run = load_run(write_run(tmp_path / "r", [], seed=5, config=config, planned=3))
    words = shlex.split(command(run.manifest).splitlines()[-1])
    assert words[:4] == ["SEED=5", "fedge", "run", "."]
    again = Project(Path(__file__).parents[3]).run_config([words[words.index("-c") + 1]])
    assert changed_options(again) == changed_options(run.config) == {**config, "num-server-rounds": 3}


def test_the_command_to_reproduce_names_the_version_and_own_code_in_one_comment():
    parts = {"train.model": {"name": "mine:Net"}, "gate.rule": {"name": "also:gate"}}
    said = command({"seed": 5, "versions": {"fedge": "0.1.0"}, "parts": parts})
    assert said.splitlines()[0] == "# with Fedge 0.1.0, in the folder of also:gate, mine:Net"


@pytest.mark.parametrize("odd", ["0.1.0\nrm -rf ~", "0.1.0\r\nls", "\x1b[2J", "a\u2028b"])
def test_no_forged_text_begins_a_command_of_its_own(odd):
    for manifest in ({"versions": {"fedge": odd}}, {"parts": {"train.model": {"name": odd}}}):
        comment, *commands = command({"seed": 5, **manifest}).splitlines()
        assert comment.startswith("# with Fedge ")
        assert [words[:14] for words in commands] == ["SEED=5 fedge r"]


# --- small parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (float("nan"), "–"), (0.12345, "0.1235"), (-0.5, "−0.5000"), (-1e-9, "0.0000"),
     (12.34, "12.3"), (12345.6, "12,346"), (7, "7"), (True, "true"), ("a", "a")],
)  # fmt: skip
def test_values_as_text(value, text):
    assert tables.text_of(value) == text


def test_units_and_ranges():
    assert [tables.bytes_text(n) for n in (999, 1500, 2.5e6, 3e12)] == ["999 B", "1.5 kB", "2.5 MB", "3.0 TB"]
    assert [tables.seconds_text(s) for s in (1.26, 65, 3725)] == ["1.3 s", "1 min 05 s", "1 h 02 min"]
    assert tables.ranges([1, 2, 3, 5, 8, 9]) == "1–3, 5, 8–9"
    assert tables.ranges([1, 2]) == "1–2"


def test_the_matrices_shown_are_first_change_and_last(tmp_path):
    def steps(*labels):
        rounds = [round_result(k, [5] * 4, labels=pair) for k, pair in enumerate(labels, start=1)]
        return load_run(write_run(tmp_path / str(len(list(tmp_path.iterdir()))), rounds)).clusters

    assert chosen_steps(steps((0, 0), (0, 0), (0, 1), (0, 1), (0, 0))) == [0, 2, 4]
    assert chosen_steps(steps((0, 0), (0, 0), (0, 0))) == [0, 1, 2]
    assert chosen_steps(steps((0, 0))) == [0]


# --- in a browser -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no Chromium on this machine (Debian: apt-get install chromium)")
    with Browser(chromium, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(real_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_comparison([load_run(real_run)], folder / "compare.html")
    return {"report": real_run / "report.html", "compare": folder / "compare.html"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", ["report", "compare"])
def test_in_a_browser(browser, pages, page, width, dark):
    """Nothing is complained about or fetched, and nothing is wider than the window, tables opened or not."""
    browser.messages.clear()
    browser.requests.clear()
    browser.open(pages[page], width, dark=dark)
    for _ in ("closed", "opened"):
        assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.evaluate("document.body.scrollWidth <= window.innerWidth")
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.messages == []
    assert browser.requests == [pages[page].absolute().as_uri()]
    paper = palette.css_variables(dark)["--paper"]
    channels = ", ".join(str(int(paper[k : k + 2], 16)) for k in (1, 3, 5))
    shown = "getComputedStyle(document.documentElement).backgroundColor"
    assert browser.evaluate(shown) == f"rgb({channels})"
    drawn = (
        "[...document.querySelectorAll('figure > svg')].every(s => s.getBoundingClientRect().height > 100)"
    )
    assert browser.evaluate(drawn)


def test_the_browser_would_notice(browser, tmp_path):
    """The checks above can fail: a page that complains, fetches and is too wide is seen as such."""
    page = tmp_path / "bad.html"
    page.write_text(
        '<div style="width: 600px">x</div><img src="gone.png"><script>console.error("x")</script>'
    )
    browser.messages.clear()
    browser.requests.clear()
    browser.open(page, 390)
    assert browser.evaluate("document.documentElement.scrollWidth") > 390
    assert len(browser.messages) == 2
    assert browser.requests[-1].endswith("gone.png")


def test_it_prints(browser, pages):
    browser.open(pages["report"], 1280, dark=True)
    assert browser.pdf().startswith(b"%PDF")
