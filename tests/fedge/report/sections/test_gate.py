"""Section on the gate: decisions are counted where they are made, and a gain is what the rule calls one."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from fedge import load_run, simulate
from fedge.report.html.svg import figure_style
from fedge.report.run_page import tiles
from fedge.report.sections.gate import gate_section

pytestmark = pytest.mark.whole_runs

SMALL = {"num-server-rounds": 2, "train.model": "linear", "train.local-epochs": 1, "report": False}
PATIENTS = {
    **SMALL, "data.path": "diabetes", "train.task": "regression", "clients": 10, "hierarchy.num-servers": 2,
}  # fmt: skip
TREES = {
    "two tiers": {"clients": 9, "gate.min-gain": 0.02},
    "regions choose": {"hierarchy.tree": "2x2x2", "clients": 8},
    "regions choose, leaves do not": {"hierarchy.tree": "((2,2),(2,2,2))", "clients": 10, "gate.tiers": "0"},
    "leaves choose": {"hierarchy.tree": "2x2x2", "clients": 8, "gate.tiers": "1"},
    "both choose": {"hierarchy.tree": "2x2x2x1", "clients": 8, "gate.tiers": "0,2"},
    "leaves have no other below their server": {
        "hierarchy.tree": "2x2x1x2",
        "clients": 8,
        "gate.tiers": "0,2",
    },
}


def run_of(folder, options):
    """A finished run, and what it printed."""
    with (folder / "terminal.txt").open("w") as terminal:
        done = simulate(
            {**SMALL, "data.path": "synthetic", "runs-dir": str(folder), **options}, terminal=terminal
        )
    return load_run(done.folder), (folder / "terminal.txt").read_text()


def decided(folder):
    """Decisions in servers.csv, by the standard library: round → accepted, rejected, and all places."""
    with (Path(folder) / "metrics/servers.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["gate"] in ("accepted", "rejected")]
    rounds = sorted({int(row["global_round"]) for row in rows})
    of = {r: [row["gate"] for row in rows if int(row["global_round"]) == r] for r in rounds}
    return {r: (made.count("accepted"), made.count("rejected")) for r, made in of.items()}


@pytest.mark.parametrize("shape", TREES)
def test_terminal_tile_and_section_count_each_decision_once(tmp_path, shape):
    run, printed = run_of(tmp_path, TREES[shape])
    of_rounds = decided(run.folder)
    taken, kept = np.array(list(of_rounds.values())).sum(axis=0)
    assert [(int(a), int(b)) for a, b in re.findall(r"gate (\d+) taken (\d+) kept", printed)] == [
        *of_rounds.values()
    ]
    with figure_style():
        section = gate_section(run)
    assert section.text[0].startswith(f"{taken} of {taken + kept} offers ")
    (tile,) = [tile for tile in tiles(run) if tile.label == "Gate"]
    assert tile.value == f"{taken} of {taken + kept}"
    every = [line for line in run.manifest["remarks"] if line.startswith("the gate ")]
    assert all(f"all {taken + kept} offers" in line for line in every)
    assert bool(every) == (not taken or not kept)


def test_rows_are_of_those_who_choose(tmp_path):
    run, _ = run_of(tmp_path, TREES["regions choose, leaves do not"])
    with figure_style():
        section = gate_section(run)
    assert "A region takes an offer" in section.text[0]
    assert "the region's own clients" in section.text[0]
    numbers = section.panels[0].table
    assert numbers.headers[:2] == ("round", "region")
    assert [tuple(row[:2]) for row in numbers.rows] == [("1", "0"), ("1", "1"), ("2", "0"), ("2", "1")]
    assert [panel.title for panel in section.panels[1:3]] == [
        "Region 0: own and offered model", "Region 1: own and offered model",
    ]  # fmt: skip


def test_gain_of_an_error_is_a_fall_and_what_is_taken_lies_above_the_line(tmp_path):
    run, _ = run_of(tmp_path, {**PATIENTS, "num-server-rounds": 4, "gate.min-gain": 0.001})
    with figure_style():
        section = gate_section(run)
        (axes,) = section.panels[0].figure.axes
    (line,) = axes.get_lines()
    needed = line.get_ydata()[0]
    filled, hollow = [], []
    for points in axes.collections:
        into = filled if len(points.get_facecolor()) else hollow
        into += [y for _, y in np.ma.filled(points.get_offsets(), np.nan) if np.isfinite(y)]
    rows = run.leaves.drop_nulls("val_rmse_offered")
    assert len(filled) == (rows["gate"] == "accepted").sum() > 0
    assert len(hollow) == (rows["gate"] == "rejected").sum() > 0
    assert min(filled) >= needed > max(hollow)
    assert axes.get_ylabel() == "own − offered"


@pytest.mark.parametrize(
    ("options", "said", "unsaid"),
    [
        (PATIENTS, "Student's", "McNemar"),
        ({"clients": 9}, "McNemar's", "Student"),
    ],
)
def test_evidence_names_the_test_of_the_task(tmp_path, options, said, unsaid):
    run, _ = run_of(tmp_path, options)
    with figure_style():
        (evidence,) = [p for p in gate_section(run).panels if p.title == "What each decision rests on"]
    assert said in evidence.caption
    assert unsaid not in evidence.caption
    assert ("only own right" in evidence.table.headers) == (unsaid == "Student")


def test_gate_that_is_off_counts_only_what_was_compared(tmp_path):
    options = {"clients": 9, "gate.enabled": False, "cluster.enabled": False, "scaffold.enabled": False}
    run, _ = run_of(tmp_path, {**options, "num-server-rounds": 3, "evaluate.every": 2})
    with figure_style():
        section = gate_section(run)
    assert section.text == [
        "The gate is off: every offer is taken. 6 offers were compared. Accuracies are of validation windows."
    ]
    (axes,) = section.panels[0].figure.axes
    assert [line.get_label() for line in axes.get_lines()] == ["equally good"]
    assert "How both models compare" in [panel.title for panel in section.panels]


def test_damaged_table_of_servers_costs_the_regions_names_alone(tmp_path):
    run, _ = run_of(tmp_path, TREES["regions choose"])
    (run.folder / "metrics/servers.csv").write_text("global_round,path,tier,name\n1,/0/0,2,leaf\n")
    with figure_style():
        section = gate_section(load_run(run.folder))
    assert section.panels[0].table.headers[:2] == ("round", "leaf")
    assert json.loads((run.folder / "manifest.json").read_text())["status"] == "completed"
