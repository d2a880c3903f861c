"""Curves by the score of a task, in its words, and comparisons by one of which less is better."""

import json
from dataclasses import replace

import pytest
from run_folders import round_result, write_run

from fedge.config.registers.option import ConfigError
from fedge.records.reading.reader import load_run
from fedge.report.comparison.curves import curves_section
from fedge.report.comparison.finals import final_lines, finals
from fedge.report.comparison.groups import Group, group_runs, settings_of, with_same_score
from fedge.report.comparison.page import comparison_notices
from fedge.report.comparison.targets import costs_to, default_target, device_costs_to
from fedge.report.comparison.yardsticks import Yardsticks
from fedge.report.html.svg import figure_style

ERROR = {"name": "accuracy", "unit": "m", "words": "miss", "higher_is_better": False, "lowest": 0.0}
TASK = {"name": "mine:Task", "scores": [ERROR], "loss_unit": "", "least_loss": None}


@pytest.fixture(name="make")
def fixture_make(tmp_path):
    """Function that writes a run of two rounds, 4 clients, ending with rights of 10, scored by a distance."""

    def make(name, rights, seed=1, task=TASK, **kwargs):
        rounds = [round_result(1, [9, 9, 9, 9]), round_result(2, rights)]
        folder = write_run(tmp_path / name, rounds, seed=seed, **kwargs)
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**manifest, "task": task}))
        return load_run(folder)

    return make


@pytest.fixture(name="two")
def fixture_two(make):
    """Runs that miss by 0.8 and by 0.4."""
    return [make("far", [8, 8, 8, 8], config={"cluster.enabled": False}), make("near", [4, 4, 4, 4])]


def test_curves_have_the_words_of_the_score(two):
    groups, _ = group_runs(two)
    with figure_style():
        titles = [panel.title for panel in curves_section(groups).panels]
    assert titles[:3] == [f"Mean test miss over {over}" for over in ("rounds", "seconds", "bytes")]
    assert titles[3] == "Worst client's test miss over rounds"


def test_a_mean_names_the_seeds_that_it_is_of(make):
    """In round 2, only the first of two seeds has a score: 0.8 is a mean of one, 0.9 in round 1 of both."""
    groups, _ = group_runs([make("a-seed1", [8] * 4), make("a-seed2", [None] * 4, seed=2)])
    with figure_style():
        panel = curves_section(groups).panels[0]
    cells = [[str(cell) for cell in row] for row in panel.table.rows]
    assert [(row[1], row[3], row[-1]) for row in cells] == [("1", "0.9000", "2"), ("2", "0.8000", "1")]


def test_the_least_is_the_best(two):
    """0.4 of 0.8 and 0.4 is marked; there is no upper end, 0 is the lower one."""
    rows = [row for row in finals(group_runs(two)[0]) if row.metric == "mean test miss"]
    assert [(row.over_seeds.mean, row.is_best) for row in rows] == [(0.8, False), (0.4, True)]
    assert [row.headline for row in rows] == [1, 1]


def test_a_target_is_reached_from_above(two):
    """5 % worse than 0.8 is 0.84: round 1 has 0.9, round 2 0.8; of 0.4 the last round, too; 0.3 never."""
    groups, _ = group_runs(two)
    assert default_target(groups[0], "test_accuracy_mean") == pytest.approx(0.84)
    assert [costs_to("test_accuracy_mean", 0.84)["rounds to 0.840"](run) for run in two] == [2.0, 2.0]
    assert [costs_to("test_accuracy_mean", 0.3)["rounds to 0.300"](run) for run in two] == [None, None]
    assert [costs_to("test_accuracy_mean", 0.95)["rounds to 0.950"](run) for run in two] == [1.0, 1.0]


def test_a_client_is_worse_off_that_misses_by_more(make):
    """The global model misses by 0.5 at all; the other by 0.4, 0.4, 0.6 and 0.5: one in four is worse off."""
    off = {"cluster.enabled": False, "gate.enabled": False}
    runs = [make("global", [5, 5, 5, 5], config=off), make("mine", [4, 4, 6, 5])]
    assert Yardsticks(group_runs(runs)[0]).worse_off("global", unseen_clients=False)(runs[1]) == 0.25


def test_runs_of_other_scores_are_not_compared(make):
    other = {**TASK, "scores": [{**ERROR, "name": "macro_f1", "words": "F1"}]}
    runs = [make("a", [8, 8, 8, 8]), make("b", [8, 8, 8, 8], task=other)]
    with pytest.raises(ConfigError, match="must have the same score, but a has miss and b has F1"):
        group_runs(runs)
    same_words = {**TASK, "scores": [{**ERROR, "name": "os:system"}]}
    with pytest.raises(ConfigError, match=r"but a has .accuracy. and c has .os:system.; compare"):
        group_runs([runs[0], make("c", [8, 8, 8, 8], task=same_words)])
    groups = [Group(run.name, [run], settings_of(run)) for run in runs]  # as a sweep over tasks makes them
    assert with_same_score(groups) == groups[:1]
    assert any("b is scored by F1, not by miss" in notice.text for notice in comparison_notices(groups, []))


# --- rounds that devices take -------------------------------------------------------------------------


@pytest.fixture(name="timed")
def fixture_timed(tmp_path):
    """A run with energy, one without, one in real time: accuracy 0.5 after 3 s, 0.9 after 6."""

    def make(name, **last):
        facts = [{}, {}] if not last else [{k: v / 2 for k, v in last.items()}, last]
        rights = ([5] * 4, [9] * 4)
        rounds = [replace(round_result(n + 1, rights[n]), **facts[n]) for n in (0, 1)]
        config = {"data.path": f"{name}.npz"}
        return load_run(write_run(tmp_path / name, rounds, config=config))

    return [make("known", virtual_s=6.0, joules=8.0), make("unknown", virtual_s=6.0), make("real")]


def test_virtual_seconds_and_joules_to_a_target(timed):
    found = [
        {k: read(run) for k, read in device_costs_to("test_accuracy_mean", 0.8).items()} for run in timed
    ]
    seconds, joules = "virtual seconds to 0.800", "joules to 0.800"
    assert found == [
        {seconds: 6.0, joules: 8.0}, {seconds: 6.0, joules: None}, {seconds: None, joules: None},
    ]  # fmt: skip
    assert [read(timed[0]) for read in device_costs_to("test_accuracy_mean", 0.5).values()] == [3.0, 4.0]
    assert [read(timed[0]) for read in device_costs_to("test_accuracy_mean", 0.95).values()] == [None, None]
    assert [read(timed[0]) for read in device_costs_to("test_other_mean", 0.5).values()] == [None, None]


def test_curves_over_costs_have_the_groups_that_know_them(timed):
    groups = [Group(run.name, [run], settings_of(run)) for run in timed]
    with figure_style():
        panels = {panel.title: panel for panel in curves_section(groups).panels}
    energy, seconds, moved = (
        panels[f"Mean test accuracy over {over}"] for over in ("energy", "virtual seconds", "bytes")
    )
    assert [row[0] for row in energy.table.rows] == ["known", "known"]
    assert {row[0] for row in seconds.table.rows} == {"known", "unknown"}
    assert {row[0] for row in moved.table.rows} == {"known", "unknown", "real"}
    colours = {series.label: series.colour for panel in (seconds, moved) for series in panel.points.series}
    assert len(set(colours.values())) == 3
    assert all(s.colour == colours[s.label] for s in (*energy.points.series, *seconds.points.series))


def test_the_comparison_prints_what_devices_spent(timed):
    text = "\n".join(final_lines(finals([Group(run.name, [run], settings_of(run)) for run in timed])))
    assert "virtual seconds to" in text
    assert "joules to" in text
